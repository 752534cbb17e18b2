"""``sglang-specv2 doctor``: what is installed, what is patched, and what a server would get."""

import argparse
import importlib.util
import platform
from importlib.metadata import PackageNotFoundError, entry_points, version
from typing import Any

from sglang_specv2 import compat, cpu, gpus, plugin
from sglang_specv2.cli import explain, features, serve
from sglang_specv2.cli.report import Report, State
from sglang_specv2.config import SWITCH, plugin_enabled
from sglang_specv2.version import SUPPORTED_SGLANG, __version__

GROUP = "sglang.srt.plugins"
ENTRY_POINT = "specv2"

_GPU_PACKAGES = ("sglang-kernel", "flashinfer-python", "triton")
_PACKAGES = ("torch", "transformers", "nvidia-ml-py")


def add_parser(commands: Any) -> None:
    """Adds ``doctor``."""
    parser = commands.add_parser(
        "doctor",
        help="say what is installed and patched, and what the given flags of SGLang get",
        description="Checks this installation. Flags of `sglang serve` may follow: then it also "
        "says what a server with them would get, and why not more.",
        allow_abbrev=False,
    )
    parser.add_argument("--no-gpu", action="store_true", help="do not expect a GPU")
    parser.add_argument("--cpu", action="store_true", help="as `serve --cpu`; implies --no-gpu")
    parser.add_argument(
        "--explain",
        metavar="ERROR",
        help='take a shape error apart, such as "The size of tensor a (160) must match the size '
        'of tensor b (2)", for the given flags',
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, sglang_argv: list[str]) -> int:
    """Prints the report.

    Returns:
        0, or 1 when something is wrong.

    Raises:
        ConfigError: ``--explain`` is given a text that is no shape error.
    """
    if args.explain is not None:
        print(explain.explain(args.explain, features.shape(sglang_argv)))
        return 0
    on_cpu = args.cpu
    if args.cpu or sglang_argv:
        sglang_argv, on_cpu = serve.plan(sglang_argv, cpu_asked=args.cpu)
    report = examine(sglang_argv, on_cpu=on_cpu, gpu_expected=not (args.no_gpu or on_cpu))
    print(report)
    return 1 if report.problems else 0


def examine(sglang_argv: list[str], *, on_cpu: bool, gpu_expected: bool) -> Report:
    """Looks at this installation, and at what SGLang's arguments would get.

    Args:
        sglang_argv: flags of ``sglang serve``; may be empty.
        on_cpu: whether the CPU engine would serve.
        gpu_expected: whether a missing GPU, or package for one, is a problem.
    """
    report = Report()
    _versions(report, gpu_expected)
    _gpus(report, gpu_expected)
    _seams(report, on_cpu)
    if _patches(report, on_cpu):
        features.examine(report, sglang_argv, gpu_expected=gpu_expected)
    return report


def _versions(report: Report, gpu_expected: bool) -> None:
    section = "versions"
    report.add(
        section, State.OK, f"sglang-specv2 {__version__}, Python {platform.python_version()}"
    )
    installed = compat.installed_version()
    report.add(
        section,
        State.OK if installed == SUPPORTED_SGLANG else State.PROBLEM,
        f"sglang {installed or 'not installed'} (supported: {SUPPORTED_SGLANG})",
    )
    for names, required in ((_PACKAGES, True), (_GPU_PACKAGES, gpu_expected)):
        for name in names:
            try:
                report.add(section, State.OK, f"{name} {version(name)}")
            except PackageNotFoundError:
                state = State.PROBLEM if required else State.NOTE
                report.add(section, state, f"{name} is not installed")


def _gpus(report: Report, gpu_expected: bool) -> None:
    section = "GPU"
    if not gpu_expected:
        report.add(section, State.NOTE, "not looked for")
        return
    try:
        for gpu in gpus.find():
            report.add(
                section,
                State.OK,
                f"{gpu.name}, {gpu.free_bytes / 2**30:.1f} of {gpu.total_bytes / 2**30:.1f} GiB "
                f"free, driver {gpu.driver}",
            )
    except gpus.NoGpuError as error:
        report.add(section, State.PROBLEM, f"{error}; give --no-gpu where none is meant to be")


def _seams(report: Report, on_cpu: bool) -> None:
    section = "names of SGLang that we rely on"
    names = compat.ledger(cpu_engine=on_cpu)
    differences = compat.check(names)
    if not differences:
        report.add(section, State.OK, f"all {len(names)} as expected")
    for difference in differences:
        report.add(section, State.PROBLEM, difference)


def _patches(report: Report, on_cpu: bool) -> bool:
    """Loads SGLang with its plugins, as its launcher does; false when that cannot be done."""
    section = "plugin"
    if not plugin_enabled():
        report.add(section, State.PROBLEM, f"switched off: {SWITCH}=0; unset it")
        return False
    found = entry_points(group=GROUP)
    report.add(section, State.NOTE, "of SGLang: " + (", ".join(sorted(found.names)) or "none"))
    if compat.installed_version() is None:
        return False
    if on_cpu or importlib.util.find_spec("triton") is None:
        cpu.install()
        report.add(section, State.NOTE, "looked at with the CPU engine installed")
    try:
        import sglang.srt.server_args
        import sglang.srt.speculative.spec_info  # noqa: F401
        from sglang.srt.environ import envs
        from sglang.srt.plugins import load_plugins, load_plugins_by_group
    except ImportError as error:
        report.add(section, State.PROBLEM, f"SGLang cannot be imported: {error}")
        return False
    if ENTRY_POINT not in load_plugins_by_group(GROUP):
        report.add(section, State.PROBLEM, _not_loaded(ENTRY_POINT in found.names))
    elif envs.SGLANG_PLATFORM.get():
        report.add(
            section,
            State.PROBLEM,
            f"SGLANG_PLATFORM={envs.SGLANG_PLATFORM.get()}: SGLang then leaves this plugin out; "
            "unset it",
        )
    load_plugins()
    for patch in plugin.status().patches:
        state = State.OK if patch.in_order else State.PROBLEM
        report.add(section, state, f"{patch.purpose}: {patch.state}")
    return True


def _not_loaded(installed: bool) -> str:
    if installed:
        return f"SGLANG_PLUGINS does not name {ENTRY_POINT}, so SGLang leaves it out; add it"
    return (
        "SGLang's own commands do not find sglang-specv2: its entry points are not installed; "
        "install it with pip into this environment"
    )
