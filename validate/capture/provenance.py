"""Where and with what a capture was made: hardware, versions, settings, source."""

import datetime as dt
import hashlib
import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from validate.schema import Provenance

__all__ = [
    "NUMERIC_PREFIXES",
    "NUMERIC_VARIABLES",
    "collect_provenance",
    "cpu_flags",
    "cpu_name",
    "digest_files",
    "numeric_environment",
    "source_state",
    "sources_digest",
]

PACKAGE = Path(__file__).parents[1]

NUMERIC_VARIABLES = (
    "ATEN_CPU_CAPABILITY",  # which vector kernels ATen dispatches to
    "CUBLAS_WORKSPACE_CONFIG",  # cuBLAS algorithm choice, hence summation order
    "CUDA_VISIBLE_DEVICES",
    "DNNL_DEFAULT_FPMATH_MODE",
    "DNNL_MAX_CPU_ISA",
    "HIP_VISIBLE_DEVICES",
    "HSA_OVERRIDE_GFX_VERSION",  # kernels of another architecture
    "MKL_CBWR",  # MKL's reproducibility mode
    "MKL_ENABLE_INSTRUCTIONS",
    "MKL_NUM_THREADS",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_NUM_THREADS",  # how sums are split
    "ONEDNN_DEFAULT_FPMATH_MODE",
    "ONEDNN_MAX_CPU_ISA",
    "OPENBLAS_CORETYPE",
    "OPENBLAS_NUM_THREADS",
    "PYTORCH_TUNABLEOP_ENABLED",
    "PYTORCH_TUNABLEOP_FILENAME",
    "ROCBLAS_INTERNAL_FP16_ALT_IMPL",
    "ROCR_VISIBLE_DEVICES",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "TORCH_BLAS_PREFER_CUBLASLT",
    "TORCH_BLAS_PREFER_HIPBLASLT",
    "TRITON_F32_DEFAULT",
    "TRITON_INTERPRET",
)
"""Environment variables that change the numbers a path computes."""

NUMERIC_PREFIXES = ("AITER_", "SGLANG_AITER_", "SGLANG_USE_AITER", "VLLM_ROCM_")
"""Every variable that starts so is recorded too: kernel switches of the serving stacks."""

_PACKAGES = (
    "torch",
    "numpy",
    "safetensors",
    "triton",
    "flashinfer-python",
    "fla-core",
    "amd-aiter",
)
_BLOCK = 1 << 20


def collect_provenance(
    *,
    device: str,
    uses_torch: bool = True,
    engine_args: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Provenance:
    """Describe this machine as the maker of a capture.

    Args:
        device: ``cpu``, ``cuda`` or ``rocm``; the latter two ask torch for the card.
        uses_torch: False for code on NumPy alone, which then never imports torch.
        engine_args: Arguments the engine was started with.
        environ: Environment to record from; the process's own when None.

    Returns:
        The record; what this machine cannot tell is None or absent, never guessed.
    """
    hardware, arch, driver = _card(device) if device != "cpu" else (cpu_name(), "", None)
    threads = None
    versions = {"python": platform.python_version(), **_installed()}
    if uses_torch:
        import torch

        threads = torch.get_num_threads()
        versions["torch"] = torch.__version__
        versions |= {
            name: version
            for name, version in (("cuda", torch.version.cuda), ("hip", torch.version.hip))
            if version is not None
        }
        arch = arch or torch.backends.cpu.get_cpu_capability()
    commit, patch = source_state()
    return Provenance(
        created=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        device=device,
        hardware=hardware,
        arch=arch or platform.machine(),
        driver=driver,
        versions=versions,
        engine_args=dict(engine_args or {}),
        environment=numeric_environment(os.environ if environ is None else environ),
        threads=threads,
        source_commit=commit,
        patch_digest=patch,
    )


def numeric_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of ``environ`` that change numerics, sorted by name."""
    return {
        name: environ[name]
        for name in sorted(environ)
        if name in NUMERIC_VARIABLES or name.startswith(NUMERIC_PREFIXES)
    }


def digest_files(files: Iterable[Path], *, root: Path) -> str:
    """SHA-256 over the names relative to ``root`` and contents of ``files``, in name order."""
    total = hashlib.sha256()
    for path in sorted(files):
        content = hashlib.sha256()
        with path.open("rb") as stream:
            while block := stream.read(_BLOCK):
                content.update(block)
        total.update(f"{path.relative_to(root).as_posix()}\0{content.hexdigest()}\n".encode())
    return total.hexdigest()


def sources_digest(*rooms: str, package: Path = PACKAGE) -> str:
    """Digest of the Python files of ``rooms``, e.g. ``sources_digest("models", "capture")``."""
    files = [path for room in rooms for path in (package / room).rglob("*.py")]
    return digest_files(files, root=package)


def cpu_name() -> str:
    """The processor by its vendor's name, else the machine type."""
    return _cpu_field("model name") or platform.processor() or platform.machine()


def cpu_flags() -> str:
    """Instruction-set flags of the processor, sorted; the machine type where none are listed."""
    flags = _cpu_field("flags") or _cpu_field("Features")
    return " ".join(sorted(flags.split())) or platform.machine()


def _cpu_field(name: str) -> str:
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        return ""
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""


def _installed() -> dict[str, str]:
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _card(device: str) -> tuple[str, str, str | None]:
    import torch

    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    if device == "rocm":
        return str(properties.name), str(properties.gcnArchName), _amd_driver()
    driver = _output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    arch = f"sm_{properties.major}{properties.minor}"
    return str(properties.name), arch, driver.splitlines()[0] if driver else None


def _amd_driver() -> str | None:
    try:
        return Path("/sys/module/amdgpu/version").read_text("utf-8").strip()
    except OSError:
        return None


def source_state(package: Path = PACKAGE) -> tuple[str | None, str | None]:
    """Commit of the work tree that tracks ``package``, and a digest of what differs from it."""
    git = ("git", "-C", str(package))
    if not _output(*git, "ls-files", "--", "__init__.py"):
        return None, None
    commit = _output(*git, "rev-parse", "HEAD")
    patch = _output(*git, "diff", "HEAD", "--", ".")
    return commit, hashlib.sha256(patch.encode()).hexdigest() if patch else None


def _output(*command: str) -> str | None:
    """What a command prints; None when it is missing, fails or prints nothing."""
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    text = done.stdout.decode("utf-8", "replace").strip()
    return text if done.returncode == 0 and text else None
