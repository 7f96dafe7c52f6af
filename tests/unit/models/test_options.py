"""Switches and configurations that are refused, by their text."""

from typing import Literal

import pytest

from validate.errors import InputError
from validate.models import FAULTS, REFERENCE_FAULTS, PathOptions, load_config


@pytest.mark.parametrize(
    ("switches", "message"),
    [
        ({"splits": 0}, r"^splits=0: at least 1 part of the keys is needed$"),
        ({"splits": -2}, r"^splits=-2: at least 1 part of the keys is needed$"),
        ({"kda_chunk": 0}, r"^kda_chunk=0: must be within 1\.\.16$"),
        ({"kda_chunk": 17}, r"^kda_chunk=17: must be within 1\.\.16$"),
        (
            {"fault": "VX-99"},
            r"^fault=VX-99: the torch model plants VX-01, LC-01, VX-02, SA-04, SA-05, SA-01, ",
        ),
        (
            {"fault": ""},
            r"^fault=: the torch model plants VX-01, LC-01, VX-02, SA-04, SA-05, SA-01, ",
        ),
    ],
)
def test_what_no_kernel_offers_is_refused(switches, message):
    with pytest.raises(InputError, match=message):
        PathOptions(**switches)


@pytest.mark.parametrize("fault", FAULTS)
def test_known_faults_are_taken(fault):
    path: Literal["reference", "rocm"] = "reference" if fault in REFERENCE_FAULTS else "rocm"

    assert PathOptions(path=path, fault=fault).fault == fault


@pytest.mark.parametrize("fault", REFERENCE_FAULTS)
def test_a_fault_of_the_reference_has_no_site_elsewhere(fault):
    with pytest.raises(InputError, match=rf"^fault={fault}: path 'rocm' has no site for it"):
        PathOptions(path="rocm", fault=fault)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("prefill_pad", "tile"),
        ("decode_pad", "tile"),
        ("decode_pad", "repeat"),
        ("prefill", "fp8"),
        ("prefill", "fp8-fnuz"),
        ("fault", "VX-02"),
    ],
)
def test_the_reference_path_refuses_what_it_would_not_read(key, value):
    message = (
        rf"^{key}={value}: path 'reference' has no padded heads, no float8 prefill and no planted "
        rf"fault; it would run as if this were not set\n  do next: leave out {key}, or take path 'rocm'$"
    )
    with pytest.raises(InputError, match=message):
        PathOptions(**{key: value})


def test_options_cannot_be_changed_afterwards():
    with pytest.raises(AttributeError):
        PathOptions().splits = 4  # type: ignore[misc]


def test_a_config_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match=r"^model config .*none\.json: .*No such file"):
        load_config(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "Invalid JSON"),
        ("{}", "Field required"),
        ('{"name": 3, "more": 1}', "Extra inputs are not permitted"),
    ],
)
def test_a_config_that_describes_no_model_is_refused(tmp_path, text, message):
    path = tmp_path / "config.json"
    path.write_text(text)

    with pytest.raises(InputError, match=rf"(?s)^model config .*config\.json: .*{message}"):
        load_config(path)
