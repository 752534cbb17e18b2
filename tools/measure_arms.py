#!/usr/bin/env python3
"""Compares decode throughput of several servers on one GPU, side by side and round by round.

All arms are up at once and loaded in turn, each level of each round on every arm before the next,
so that clocks and temperature drift under all of them alike. Weights are random
(``--load-format dummy``) in a real shape; with speculation the accept length is simulated
(``SGLANG_SIMULATE_ACC_LEN``). Both are real work at real sizes and say nothing about text.

    python tools/measure_arms.py --attention-backend triton --arms none stock always off --rounds 5

Writes DIR/rounds.jsonl (one line per arm, level and round) and prints medians and their ratio to
the first arm.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import aiohttp

LLAMA_8B = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 128256,
    "max_position_embeddings": 16384,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "bos_token_id": 1,
    "eos_token_id": 2,
}
EAGLE3_8B = {
    **LLAMA_8B,
    "architectures": ["LlamaForCausalLMEagle3"],
    "num_hidden_layers": 1,
    "draft_vocab_size": 32000,
}

SPECULATION = [
    "--speculative-algorithm", "EAGLE3", "--speculative-draft-load-format", "dummy",
    "--speculative-num-steps", "2", "--speculative-eagle-topk", "1",
    "--speculative-num-draft-tokens", "3",
]  # fmt: skip

ARMS: dict[str, tuple[list[str], dict[str, str]]] = {
    "none": ([], {"SGLANG_SPECV2": "0"}),
    "stock": (SPECULATION, {"SGLANG_SPECV2": "0"}),
    "always": (SPECULATION, {"SGLANG_SPECV2_DYNAMIC": "always"}),
    "off": (SPECULATION, {"SGLANG_SPECV2_DYNAMIC": "never"}),
    "auto": (SPECULATION, {"SGLANG_SPECV2_DYNAMIC": "auto"}),
    "off-extend": (
        SPECULATION,
        {"SGLANG_SPECV2_DYNAMIC": "never", "SGLANG_SPECV2_DRAFT_SYNC": "extend"},
    ),
    "off-nosync": (
        SPECULATION,
        {"SGLANG_SPECV2_DYNAMIC": "never", "SGLANG_SPECV2_DRAFT_SYNC": "off"},
    ),
}
"""Arm → (flags, environment)."""

PROMPT_TOKENS = 128


def write_shape(folder: Path, config: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text('{"eos_token_id": 2, "bos_token_id": 1}')
    return folder


class Server:
    """One arm's server, in a process group of its own."""

    def __init__(self, arm: str, port: int, options: argparse.Namespace, out: Path) -> None:
        self.arm, self.port = arm, port
        self.log = out / f"{arm}.log"
        flags, env = ARMS[arm]
        target = write_shape(out / "llama-8b", LLAMA_8B)
        draft = write_shape(out / "llama-8b-eagle3", EAGLE3_8B)
        command = [
            sys.executable, "-m", "sglang.launch_server", "--model-path", str(target),
            "--load-format", "dummy", "--skip-tokenizer-init", "--port", str(port),
            "--attention-backend", options.attention_backend, "--mem-fraction-static", "0.85",
            "--max-total-tokens", str(options.max_total_tokens),
            "--max-running-requests", str(max(options.levels)),
            "--cuda-graph-max-bs-decode", str(max(options.levels)),
            "--disable-radix-cache", "--grammar-backend", "none", "--sleep-on-idle",
            "--cuda-graph-backend-prefill", "disabled", "--log-level-http", "warning",
            *flags,
        ]  # fmt: skip
        if flags:
            command += ["--speculative-draft-model-path", str(draft)]
        if options.capture_sizes:
            command += ["--cuda-graph-bs-decode", *map(str, options.capture_sizes)]
        environment = {**os.environ, **env, "SGLANG_SIMULATE_ACC_LEN": str(options.accept_length)}
        self.started = time.monotonic()
        with self.log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait(self, timeout_s: float) -> float:
        """Seconds from start to healthy.

        Raises:
            SystemExit: the server ended or took too long; shows the end of its log.
        """
        while time.monotonic() - self.started < timeout_s and self._process.poll() is None:
            try:
                with urllib.request.urlopen(
                    f"http://127.0.0.1:{self.port}/health", timeout=2
                ) as reply:
                    if reply.status == 200:
                        return time.monotonic() - self.started
            except OSError:
                pass
            time.sleep(0.5)
        tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-30:])
        raise SystemExit(f"{self.arm}: not healthy after {timeout_s} s\n{tail}")

    def check_identity(self) -> None:
        """A plugin that failed to load leaves SGLang's own worker running: make sure of ours.

        Raises:
            SystemExit: the server is not what the arm's name says.
        """
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self.port}/server_info", timeout=30
        ) as reply:
            state = json.load(reply)["internal_states"][0]
        ours = "speculative_dynamic_state" in state
        if ours != ("SGLANG_SPECV2" not in ARMS[self.arm][1]):
            raise SystemExit(
                f"{self.arm}: {'ours' if ours else 'stock'} worker runs; see {self.log}"
            )

    def stop(self) -> None:
        for signum in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._process.pid, signum)
            except ProcessLookupError:
                return
            time.sleep(1)


async def load(port: int, concurrency: int, output_tokens: int, rng: random.Random) -> float:
    """Output tokens a second of ``concurrency`` requests sent at once."""
    timeout = aiohttp.ClientTimeout(total=600)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:

        async def one() -> int:
            body = {
                "input_ids": [rng.randrange(10, 30000) for _ in range(PROMPT_TOKENS)],
                "sampling_params": {
                    "temperature": 0,
                    "max_new_tokens": output_tokens,
                    "ignore_eos": True,
                },
            }
            async with session.post(f"http://127.0.0.1:{port}/generate", json=body) as reply:
                answer = await reply.json()
            return int(answer["meta_info"]["completion_tokens"])

        start = time.perf_counter()
        tokens = await asyncio.gather(*[one() for _ in range(concurrency)])
        return sum(tokens) / (time.perf_counter() - start)


def measure(
    servers: list[Server], options: argparse.Namespace, out: Path
) -> dict[Any, list[float]]:
    rng = random.Random(1)
    for server in servers:
        for level in (1, max(options.levels)):
            asyncio.run(load(server.port, level, 64, rng))
    rates: dict[Any, list[float]] = {}
    with (out / "rounds.jsonl").open("a") as lines:
        for round_number in range(options.rounds):
            for level in options.levels:
                for server in servers:
                    rate = asyncio.run(load(server.port, level, options.output_tokens, rng))
                    rates.setdefault((server.arm, level), []).append(rate)
                    line = {
                        "arm": server.arm,
                        "level": level,
                        "round": round_number,
                        "tokens_s": rate,
                    }
                    lines.write(json.dumps(line) + "\n")
    return rates


def table(rates: dict[Any, list[float]], arms: list[str], levels: list[int]) -> str:
    rows = ["| arm | " + " | ".join(f"C={level}" for level in levels) + " |"]
    rows.append("|---" * (len(levels) + 1) + "|")
    for arm in arms:
        cells = []
        for level in levels:
            median = statistics.median(rates[arm, level])
            # Rounds are paired: the ratio is taken within each, then its median.
            ratios = [a / b for a, b in zip(rates[arm, level], rates[arms[0], level], strict=True)]
            spread = f"{min(ratios):.3f}–{max(ratios):.3f}"
            cells.append(f"{median:.0f} ({statistics.median(ratios):.3f}; {spread})")
        rows.append(f"| {arm} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--arms", nargs="+", choices=ARMS, default=["none", "stock", "always", "off"]
    )
    parser.add_argument("--attention-backend", default="triton")
    parser.add_argument("--levels", nargs="+", type=int, default=[8, 16, 32, 64, 128])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output-tokens", type=int, default=256)
    parser.add_argument("--accept-length", type=float, default=2.2, help="simulated")
    parser.add_argument("--max-total-tokens", type=int, default=60000)
    parser.add_argument(
        "--capture-sizes", nargs="*", type=int, help="decode CUDA graph batch sizes"
    )
    parser.add_argument("--start-timeout", type=float, default=300)
    parser.add_argument("--out", type=Path, default=Path("measured"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    servers = []
    try:
        for number, arm in enumerate(options.arms):
            servers.append(Server(arm, 31000 + 10 * number, options, options.out))
        for server in servers:
            print(
                f"{server.arm}: healthy after {server.wait(options.start_timeout):.0f} s",
                flush=True,
            )
            server.check_identity()
        rates = measure(servers, options, options.out)
    finally:
        for server in servers:
            server.stop()
    print(
        f"\nOutput tokens/s, dummy weights, accept length simulated at {options.accept_length}; "
        f"{options.attention_backend}; median of {options.rounds} rounds "
        f"(ratio to {options.arms[0]} within the round: median; lowest–highest)\n"
    )
    print(table(rates, options.arms, options.levels))


if __name__ == "__main__":
    main()
