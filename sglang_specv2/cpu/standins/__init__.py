"""Stand-ins for packages that SGLang imports wherever it runs and that do nothing on a plain CPU.

triton compiles for GPUs, torchvision decodes images, soundfile reads audio, IPython displays text
in notebooks, and sgl_kernel's CPU library needs AVX-512. With a stand-in the import succeeds, and
any real use raises a :class:`StandInError` that names what was used.

A stand-in is served only where the real package is missing; sgl_kernel's always, since no wheel
holds all the operators that :mod:`sglang_specv2.cpu.kernels` defines.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import NoReturn

MODULES: dict[str, str | None] = {
    "IPython": None,
    "sgl_kernel": f"{__name__}.sgl_kernel",
    "soundfile": None,
    "torchvision": f"{__name__}.torchvision",
    "triton": f"{__name__}.triton",
    "triton.language": f"{__name__}.triton_language",
}
"""Module that is stood in for, and the module of ours whose ``__all__`` really works there."""

ALWAYS = frozenset({"sgl_kernel"})


class StandInError(RuntimeError):
    """A package was used on the CPU engine that has only a stand-in there."""


def refuse(name: str) -> NoReturn:
    """Raises StandInError for ``name``, a dotted path such as ``triton.language.load``."""
    package = name.partition(".")[0]
    raise StandInError(
        f"{name} was used, but the CPU engine has only a stand-in for {package}: either the "
        "feature needs a GPU, or sglang_specv2.cpu lacks a torch version of what called it"
    )


class Placeholder:
    """A name of a stand-in: good for imports, annotations and base classes, refused when called."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> "Placeholder":
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return Placeholder(f"{self._name}.{attribute}")

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        refuse(self._name)

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        return (object,)

    def __repr__(self) -> str:
        return f"<stand-in for {self._name}>"


class StandInModule(ModuleType):
    """A module in which every name exists, as a placeholder."""

    def __getattr__(self, attribute: str) -> Placeholder:
        if attribute.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {attribute!r}")
        return Placeholder(f"{self.__name__}.{attribute}")


class _StandInLoader(Loader):
    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return StandInModule(spec.name, "A stand-in, see sglang_specv2.cpu.standins.")

    def exec_module(self, module: ModuleType) -> None:
        ours = MODULES.get(module.__name__)
        if ours is not None:
            working = import_module(ours)
            vars(module).update({name: getattr(working, name) for name in working.__all__})


class StandInFinder(MetaPathFinder):
    """Serves the stand-ins, submodules of any name included."""

    def __init__(self) -> None:
        top_level = {name.partition(".")[0] for name in MODULES}
        self.packages = {
            name for name in top_level if name in ALWAYS or PathFinder.find_spec(name) is None
        }

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in self.packages:
            return None
        return ModuleSpec(fullname, _StandInLoader(), origin=__name__, is_package=True)


def install() -> None:
    """Puts the finder in front of the others; any number of times."""
    if not any(isinstance(finder, StandInFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, StandInFinder())
