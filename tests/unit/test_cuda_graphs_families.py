"""GraphFamily without a GPU, over a pool that re-runs instead of replaying, and EagerFamily."""

from collections import Counter

import pytest
import torch

from cuda_graphs import (
    BufferSpec,
    CaptureError,
    CaptureSizes,
    EagerFamily,
    Family,
    GraphFamily,
    GraphKey,
    InputError,
    OutputError,
    SizeError,
    StaticBuffers,
)

SPECS = {"x": BufferSpec((3,), torch.float32, pad_value=-9.0)}
SIZES = CaptureSizes([1, 2, 4, 8])


class RerunGraph:
    """Replays by running the work again and writing into the outputs of the capture."""

    def __init__(self, work, outputs):
        self.work, self.outputs, self.released = work, outputs, False

    def replay(self):
        for output, fresh in zip(self.outputs, self.work(), strict=True):
            output.copy_(fresh)

    def release(self):
        self.released = True


class RerunPool:
    """Stands in for GraphPool: the same calls, no CUDA."""

    def __init__(self, bytes_per_capture=1024):
        self.device = torch.device("cpu")
        self.graphs = []
        self.bytes_per_capture = bytes_per_capture
        self.warmup_runs = set()

    def capture(self, work, warmup_runs):
        self.warmup_runs.add(warmup_runs)
        self.graphs.append(RerunGraph(work, work()))
        return self.graphs[-1]

    def free_bytes(self):
        live = sum(not graph.released for graph in self.graphs)
        return (1 << 20) - live * self.bytes_per_capture


def double(batch_size, inputs):
    assert inputs["x"].shape == (batch_size, 3)
    return inputs["x"] * 2, inputs["x"].sum(dim=1)


def family(forward=double, pool=None, **options):
    return GraphFamily(
        "plain",
        forward,
        SIZES,
        StaticBuffers(SPECS, SIZES.largest),
        pool=pool or RerunPool(),
        **options,
    )


def captured(forward=double, pool=None):
    made = family(forward, pool)
    made.capture()
    return made


def test_captures_largest_first():
    seen = []

    def forward(batch_size, inputs):
        seen.append(batch_size)
        return double(batch_size, inputs)

    captured(forward)
    assert seen == [8, 4, 2, 1]


def test_warm_up_and_capture_see_padding_only():
    def forward(batch_size, inputs):
        assert (inputs["x"] == -9.0).all()
        return double(batch_size, inputs)

    buffers = StaticBuffers(SPECS, SIZES.largest)
    buffers.fill(8, 8, {"x": torch.ones(8, 3)})
    GraphFamily("plain", forward, SIZES, buffers, pool=RerunPool()).capture()


@pytest.mark.parametrize("batch_size", range(1, 9))
def test_returns_the_live_rows(batch_size):
    x = torch.rand(batch_size, 3)
    doubled, sums = captured().run(batch_size, x=x)
    assert torch.equal(doubled, x * 2)
    assert torch.equal(sums, x.sum(dim=1))


def test_a_smaller_batch_never_sees_rows_of_a_larger_one():
    seen = []

    def forward(batch_size, inputs):
        seen.append(inputs["x"].clone())
        return double(batch_size, inputs)

    made = captured(forward)
    made.run(8, x=torch.ones(8, 3))
    made.run(5, x=torch.full((5, 3), 2.0))
    assert torch.equal(seen[-1][:5], torch.full((5, 3), 2.0))
    assert torch.equal(seen[-1][5:], torch.full((3, 3), -9.0))


def test_accounting():
    made = captured()
    assert made.accounting.memory_bytes == 4 * 1024
    assert made.accounting.capture_s > 0
    for batch_size in (3, 4, 8, 1, 3):
        made.run(batch_size, x=torch.rand(batch_size, 3))
    assert made.accounting.replays == Counter(
        {GraphKey("plain", 4): 3, GraphKey("plain", 8): 1, GraphKey("plain", 1): 1}
    )


def test_memory_that_the_device_got_back_meanwhile_is_not_negative():
    assert captured(pool=RerunPool(bytes_per_capture=-1)).accounting.memory_bytes == 0


def test_warm_up_runs_are_passed_on():
    pool = RerunPool()
    family(pool=pool, warmup_runs=3).capture()
    assert pool.warmup_runs == {3}


def test_a_failed_capture_leaves_nothing_and_says_where():
    fails = [True]

    def forward(batch_size, inputs):
        if batch_size == 2 and fails[0]:
            try:
                raise ValueError("no kernel for 2 rows\nand a second line")
            except ValueError as error:
                raise RuntimeError("capture lost") from error
        return double(batch_size, inputs)

    pool = RerunPool()
    made = family(forward, pool)
    with pytest.raises(CaptureError) as error:
        made.capture()
    assert str(error.value).startswith(
        "family 'plain', batch size 2: expected the forward to be captured, got RuntimeError: "
        "capture lost, after ValueError: no kernel for 2 rows; nothing of this family"
    )
    assert not made.captured
    assert len(pool.graphs) == 2
    assert all(graph.released for graph in pool.graphs)
    assert (made.accounting.capture_s, made.accounting.memory_bytes) == (0.0, 0)
    with pytest.raises(CaptureError, match="expected captured graphs, got none"):
        made.run(8, x=torch.rand(8, 3))

    fails[0] = False
    made.capture()
    assert torch.equal(made.run(2, x=torch.ones(2, 3))[0], torch.full((2, 3), 2.0))


def test_an_interrupted_capture_leaves_nothing():
    def forward(batch_size, inputs):
        if batch_size == 1:
            raise KeyboardInterrupt
        return double(batch_size, inputs)

    pool = RerunPool()
    with pytest.raises(KeyboardInterrupt):
        family(forward, pool).capture()
    assert len(pool.graphs) == 3
    assert all(graph.released for graph in pool.graphs)


def test_outputs_that_mix_rows_are_refused_at_capture():
    with pytest.raises(CaptureError, match=r"batch size 8: .* OutputError: outputs: expected a"):
        captured(lambda batch_size, inputs: inputs["x"].mean())


def test_released_families_can_be_captured_again():
    made = captured()
    made.release()
    assert not made.captured
    with pytest.raises(CaptureError, match=r"call capture\(\) first"):
        made.run(1, x=torch.rand(1, 3))
    made.capture()
    assert made.captured


def test_capturing_twice_is_refused():
    with pytest.raises(CaptureError, match=r"got one that is; call release\(\) first"):
        captured().capture()


def test_a_batch_above_the_largest_size_is_refused():
    with pytest.raises(SizeError, match="at most 8, the largest captured size, got 9; run larger"):
        captured().run(9, x=torch.rand(9, 3))


def test_a_family_needs_sizes_and_room_for_them():
    buffers = StaticBuffers(SPECS, 4)
    with pytest.raises(SizeError, match="expected at least one capture size, got none"):
        GraphFamily("plain", double, CaptureSizes(), buffers)
    with pytest.raises(SizeError, match=r"expected buffers of at least 8 rows, .* got 4"):
        GraphFamily("plain", double, SIZES, buffers)
    with pytest.raises(SizeError, match="warmup_runs: expected an int, at least 1, got 0"):
        family(warmup_runs=0)


def test_capture_needs_cuda_buffers():
    made = GraphFamily("plain", double, SIZES, StaticBuffers(SPECS, 8))
    with pytest.raises(CaptureError, match=r"expected a CUDA device, got 'cpu'.*use EagerFamily"):
        made.capture()


def test_buffers_and_pool_belong_on_one_device():
    pool = RerunPool()
    pool.device = torch.device("cuda", 0)
    with pytest.raises(CaptureError, match=r"expected buffers on cuda:0, .* got cpu"):
        family(pool=pool).capture()


def test_families_can_share_buffers_and_pool():
    pool, buffers = RerunPool(), StaticBuffers(SPECS, SIZES.largest)
    doubles = GraphFamily("double", double, SIZES, buffers, pool=pool)
    halves = GraphFamily(
        "half", lambda batch_size, inputs: (inputs["x"] / 2,), SIZES, buffers, pool=pool
    )
    for made in (doubles, halves):
        made.capture()
    x = torch.rand(3, 3)
    assert torch.equal(doubles.run(3, x=x)[0], x * 2)
    assert torch.equal(halves.run(3, x=x)[0], x / 2)


def eager(forward=double):
    return EagerFamily("plain-eager", forward, SPECS)


@pytest.mark.parametrize("batch_size", [1, 3, 8, 100])
def test_eager_runs_any_batch_without_padding(batch_size):
    x, made = torch.rand(batch_size, 3), eager()
    doubled, sums = made.run(batch_size, x=x)
    assert torch.equal(doubled, x * 2)
    assert torch.equal(sums, x.sum(dim=1))
    assert made.accounting.replays == {GraphKey("plain-eager", batch_size): 1}
    assert list(made.sizes) == []


@pytest.mark.parametrize("make", [captured, eager])
def test_both_families_satisfy_the_protocol_and_refuse_the_same(make):
    made: Family = make()
    assert isinstance(made.name, str)
    with pytest.raises(InputError, match=r"expected shape \[2, 3\], got \[3, 3\]"):
        made.run(2, x=torch.rand(3, 3))
    with pytest.raises(InputError, match="expected x, got none"):
        made.run(2)
    with pytest.raises(SizeError, match="at least 1, got 0"):
        made.run(0, x=torch.rand(0, 3))
    assert not made.accounting.replays


def test_eager_refuses_outputs_that_mix_rows():
    with pytest.raises(OutputError, match="expected a tensor with 2 rows"):
        eager(lambda batch_size, inputs: inputs["x"].mean()).run(2, x=torch.rand(2, 3))


@pytest.mark.parametrize("make", [captured, eager])
def test_modules_run_without_autograd(make):
    linear = torch.nn.Linear(3, 2)
    made = make(lambda batch_size, inputs: (linear(inputs["x"]),))
    assert not made.run(2, x=torch.rand(2, 3))[0].requires_grad
