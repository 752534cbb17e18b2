"""The benchmark: SGLang's launcher and its own load generator."""

from sglang_specv2.seams.seam import RELIED_ON, Seam

_CLIENT = "figures that SGLang's own client measured are the ones to compare with"
_STAYS = "as long as the benchmark sends load with it"

SEAMS: tuple[Seam, ...] = (
    Seam(
        "sglang.launch_server.run_server",
        "(server_args)",
        "every arm is `python -m sglang.launch_server`",
        RELIED_ON,
        "as long as that command is supported",
    ),
    Seam(
        "sglang.benchmark.serving.benchmark",
        "(backend, api_url, ...)",
        "sends a round's requests and times them",
        _CLIENT,
        _STAYS,
    ),
    Seam(
        "sglang.benchmark.serving.set_global_args",
        "(args_)",
        "what it reads beside its parameters",
        _CLIENT,
        _STAYS,
    ),
    Seam(
        "sglang.benchmark.datasets.common.DatasetRow",
        "class",
        "one request",
        _CLIENT,
        _STAYS,
    ),
)
