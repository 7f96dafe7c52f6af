"""fla's adapters against stand-ins with the published signatures, and the report without a GPU."""

import json
import sys
import types
from concurrent.futures import Executor, Future

import pytest

from tests.unit.conformance.sweeping import settings_of, sweep
from validate.conformance import fla_kda
from validate.conformance.engines import foreign_fla, torch_linear
from validate.conformance.fla_kda_page import page
from validate.conformance.ops import kda_chunk, kda_recurrent
from validate.conformance.ops._kda_inputs import KdaPoint
from validate.errors import InputError

POINTS = (
    KdaPoint(lengths=(4, 0, 3), heads=2, key=8, value=8, initial=True),
    KdaPoint(lengths=(5,), heads=2, key=8, value=8),
)


def cases_of(module, **settings):
    return [module.make_case(point, settings_of(module.OPERATION, **settings)) for point in POINTS]


@pytest.fixture
def stand_in(monkeypatch):
    """``fla.ops.kda`` with the signatures of fla-core 0.6.0, computed by our own recurrence."""

    def shared(
        q, k, v, g, beta, scale=None, initial_state=None, output_final_state=False,
        use_qk_l2norm_in_kernel=False, use_gate_in_kernel=False,
        use_beta_sigmoid_in_kernel=False, allow_neg_eigval=False, lower_bound=None,
        state_v_first=False, cu_seqlens=None, A_log=None, dt_bias=None,
    ):  # fmt: skip
        assert q.shape[0] == 1
        assert output_final_state
        assert use_qk_l2norm_in_kernel
        assert use_gate_in_kernel
        assert use_beta_sigmoid_in_kernel
        assert dt_bias.ndim == 1
        out, state = torch_linear.kda_packed(
            q[0], k[0], v[0], g[0], beta[0], A_log, dt_bias.view(g.shape[2:]), lower_bound,
            initial_state, cu_seqlens, rule=torch_linear.stepwise, v_first=state_v_first,
        )  # fmt: skip
        return out.unsqueeze(0), state

    def chunk(*, safe_gate=False, **arguments):
        assert arguments["lower_bound"] == -5.0
        return shared(**arguments)

    module = types.ModuleType("fla.ops.kda")
    vars(module).update(chunk_kda=chunk, fused_recurrent_kda=shared)
    for name in ("fla", "fla.ops"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "fla.ops.kda", module)


@pytest.mark.parametrize("name", [one.name for one in foreign_fla.IMPLEMENTATIONS])
def test_adapters_keep_the_contract_over_a_right_kernel(stand_in, name):
    one = next(known for known in foreign_fla.IMPLEMENTATIONS if known.name == name)
    module = {"kda_chunk": kda_chunk, "kda_recurrent": kda_recurrent}[one.op]
    layout = one.settings.get("layout", "k_first")
    cases = cases_of(module, layout=layout)

    assert sweep(module.OPERATION, one.function, cases=cases, layout=layout) == {}


def test_what_is_not_installed_says_so():
    assert "not installed" in str(foreign_fla.available())
    assert all(one.devices == ("cuda",) for one in foreign_fla.IMPLEMENTATIONS)


def test_without_a_gpu_the_command_says_what_to_do(tmp_path):
    with pytest.raises(InputError, match="do next: run it on a GPU machine, or with --device cpu"):
        fla_kda.main(["--device", "cuda", "--out", str(tmp_path)])


class Here(Executor):
    """An executor that runs a task at once, for tests."""

    def __init__(self, **_):
        pass

    def submit(self, fn, /, *args, **kwargs):
        done: Future[object] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


def _small(monkeypatch, points):
    """Two sweep points and one long point of two heads in place of the whole sweeps."""
    from dataclasses import replace

    for module in (kda_chunk, kda_recurrent):
        few = cases_of(module)
        monkeypatch.setattr(
            module, "OPERATION", replace(module.OPERATION, cases=lambda *_, few=few: iter(few))
        )
        monkeypatch.setattr(module, "k3_points", lambda: points)
    monkeypatch.setattr(fla_kda, "ProcessPoolExecutor", Here)


def test_the_report_is_made_from_the_sweep_and_the_long_points(monkeypatch, tmp_path):
    long = KdaPoint(lengths=(40,), heads=2, key=8, value=8)
    _small(monkeypatch, (long, KdaPoint(lengths=(99,), heads=2)))

    assert fla_kda.main(["--device", "cpu", "--out", str(tmp_path), "--longest", "50"]) == 0

    report = json.loads((tmp_path / "fla-kda.json").read_text())
    chunk, recurrent = report["kernels"]
    assert chunk["result"]["verdict"] == recurrent["result"]["verdict"] == "PASS"
    assert chunk["result"]["points"] == 3
    assert {one["output"] for one in chunk["measured"]} == {"out", "final_state"}
    assert {one["point"] for one in chunk["measured"]} == {long.id}
    out = next(one for one in chunk["measured"] if one["output"] == "out")
    # A bfloat16 store alone: between a quarter and all of its roundoff.
    assert 2.0**-10 < out["rel_l2"] < 2.0**-8
    assert 0 < out["over_model"] < 2
    written = (tmp_path / "fla-kda.md").read_text()
    assert "No kernel of fla ran here" in written
    assert f"| {long.id} | out |" in written
    assert report["command"] in written
    assert written == page(report)


def test_a_failing_kernel_is_told_with_its_pattern_and_smallest_input(monkeypatch, tmp_path):
    _small(monkeypatch, ())
    right = torch_linear.kda_packed

    def wrong(**arguments):
        out, state = right(**arguments, rule=torch_linear.chunk_solve)
        out[:, 1] *= 2.0
        return out, state

    from validate.conformance.records import Implementation

    planted = Implementation(name="torch:solve64", op="kda_chunk", function=wrong, title="wrong")
    kept = [one for one in torch_linear.IMPLEMENTATIONS if one.name != "torch:solve64"]
    monkeypatch.setattr(torch_linear, "IMPLEMENTATIONS", (planted, *kept))

    assert fla_kda.main(["--device", "cpu", "--out", str(tmp_path)]) == 0

    written = (tmp_path / "fla-kda.md").read_text()
    assert "| `torch:solve64` | `kda_chunk` | FAIL | 2 | 2 |" in written
    assert "Smallest failing input" in written
    assert "head 1" in written
    result = json.loads((tmp_path / "fla-kda.json").read_text())["kernels"][0]["result"]
    assert result["smallest"]["axes"]["heads"] == 2  # heads are never cut: a compile each
