"""A server with SGLang's answers to what the benchmark asks, and with planted faults.

``FAKE_FAULTS`` holds faults by arm: ``crash`` and ``hang`` come with the third answer of a request,
``no_start`` at once, and ``other_worker`` is a server of ours whose plugin did not load. Requests
are decoded a step every few milliseconds: one token where it does not speculate, else two.
"""

import asyncio
import json
import os
import sys
import time

from aiohttp import web

STEP_S = 0.002
ACCEPTED = 1
FAULTS = json.loads(os.environ.get("FAKE_FAULTS", "{}"))


def flag(name: str) -> str | None:
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else None


def arm() -> str:
    if flag("--speculative-algorithm") is None:
        return "none"
    if os.environ.get("SGLANG_SPECV2") != "0":
        if flag("--speculative-disable-batch-threshold"):
            return "threshold"
        return flag("--speculative-dynamic") or "always"
    if "--speculative-adaptive" not in sys.argv:
        return "stock"
    cold = os.environ.get("SGLANG_SPEC_SKIP_ZERO_STEP_DRAFT_EXTEND") == "1"
    return "adaptive-cold" if cold else "adaptive-warm"


class Fake:
    def __init__(self) -> None:
        self.arm = arm()
        self.fault = FAULTS.get(self.arm)
        self.ours = self.arm in ("threshold", "auto", "never", "always")
        self.running = self.answered = 0
        self.mode = "speculative"
        self.steps = {"speculative": 0, "plain": 0}
        self.switches = {"speculative": 0, "plain": 0}
        self.verifies = self.plain_tokens = 0

    def threshold(self) -> int:
        if self.arm in ("none", "never"):
            return 0
        if self.arm.startswith("adaptive"):
            with open(flag("--speculative-adaptive-config")) as file:
                return max(map(int, json.load(file))) - 1
        return int(flag("--speculative-disable-batch-threshold") or 1000)

    async def health(self, request: web.Request) -> web.Response:
        return web.Response()

    async def info(self, request: web.Request) -> web.Response:
        state = {
            "policy": self.arm,
            "mode": self.mode,
            "batch_size": self.running,
            "draft_sync": flag("--speculative-draft-sync") or "kv",
            "steps": self.steps,
            "switches": self.switches,
            "verifies": self.verifies,
            "accepted_drafts": self.verifies * ACCEPTED,
            "plain_tokens": self.plain_tokens,
            "resumes": 0,
        }
        told = self.ours and self.fault != "other_worker"
        internal = {"memory_usage": {"weight": 1.5, "kvcache": 2.5, "graph": {"a": 0.25, "b": 0.5}}}
        if told:
            internal["speculative_dynamic_state"] = state
        return web.json_response(
            {
                "speculative_algorithm": flag("--speculative-algorithm"),
                "speculative_adaptive": "--speculative-adaptive" in sys.argv,
                "internal_states": [
                    internal | ({"speculative_dynamic_state": state} if told else {})
                ],
            }
        )

    async def generate(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        wanted = body["sampling_params"]["max_new_tokens"]
        reply = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await reply.prepare(request)
        self.running += 1
        self.answered += 1
        if self.answered > 2 and self.fault == "crash":
            print("FATAL: planted crash", flush=True)
            os._exit(3)
        if self.answered > 2 and self.fault == "hang":
            print("planted hang", flush=True)
            await asyncio.sleep(3600)
        try:
            await self.decode(reply, wanted)
        finally:
            self.running -= 1
        return reply

    async def decode(self, reply: web.StreamResponse, wanted: int) -> None:
        tokens, histogram, verifies = 1, [0, 0], 0
        while True:
            meta = {"completion_tokens": tokens, "finish_reason": None}
            if tokens == wanted:
                meta["finish_reason"] = {"type": "length"}
                if verifies:
                    meta["spec_verify_ct"] = verifies
                    meta["spec_accept_length"] = 1 + ACCEPTED
                    meta["spec_correct_drafts_histogram"] = histogram
            await reply.write(b"data: " + json.dumps({"meta_info": meta}).encode() + b"\n\n")
            if tokens == wanted:
                return await reply.write(b"data: [DONE]\n\n")
            await asyncio.sleep(STEP_S)
            plain = self.running > self.threshold()
            mode = "plain" if plain else "speculative"
            self.switches[mode] += mode != self.mode
            self.mode = mode
            self.steps[mode] += 1
            if plain:
                self.plain_tokens += 1
                tokens += 1
                if not self.ours:
                    verifies += 1
                    histogram[0] += 1
            else:
                self.verifies += 1
                verifies += 1
                histogram[ACCEPTED] += 1
                tokens = min(wanted, tokens + 1 + ACCEPTED)


def main() -> None:
    fake = Fake()
    print(f"fake {fake.arm}, {fake.fault}", flush=True)
    if fake.fault == "no_start":
        sys.exit("planted: no start")
    if fake.fault == "never_healthy":
        time.sleep(3600)
    app = web.Application()
    app.router.add_get("/health", fake.health)
    app.router.add_get("/server_info", fake.info)
    app.router.add_post("/generate", fake.generate)
    port = int(flag("--port") or 0)
    web.run_app(app, host="127.0.0.1", port=port, print=None, shutdown_timeout=0.1)


if __name__ == "__main__":
    main()
