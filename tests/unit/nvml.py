"""A driver's management library as the probe sees it, told what GPUs it has."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

GB = 1_000_000_000


class NVMLError(Exception):
    def __init__(self, value: int, text: str = "Not Supported") -> None:
        super().__init__(text)
        self.value = value


class Card(NamedTuple):
    """A GPU, or a slice of one.  ``memory`` (bytes) is None where the processor's is shared."""

    name: str
    memory: int | None
    free: int
    pci: int = 0x233010DE
    capability: tuple[int, int] | None = (9, 0)
    uuid: str = ""
    slices: tuple[Card, ...] | None = None  # of a divided GPU; () when it is divided into none


class Library:
    """The functions of pynvml that the probe calls, as they answer."""

    NVMLError = NVMLError
    NVML_ERROR_NOT_SUPPORTED = 3
    NVML_DEVICE_MIG_ENABLE = 1

    def __init__(self, cards: Sequence[Card], broken: str = "") -> None:
        self.cards, self.broken, self.open = cards, broken, 0

    def nvmlInit(self) -> None:
        if self.broken:
            raise NVMLError(999, self.broken)
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Card:
        return self.cards[index]

    def nvmlDeviceGetName(self, card: Card) -> str:
        return card.name

    def nvmlDeviceGetUUID(self, card: Card) -> str:
        return card.uuid

    def nvmlDeviceGetPciInfo(self, card: Card) -> Any:
        return SimpleNamespace(pciDeviceId=card.pci)

    def nvmlDeviceGetMemoryInfo(self, card: Card) -> Any:
        if card.memory is None:
            raise NVMLError(3)
        return SimpleNamespace(total=card.memory, free=card.free, used=card.memory - card.free)

    def nvmlDeviceGetCudaComputeCapability(self, card: Card) -> tuple[int, int]:
        if card.capability is None:
            raise NVMLError(3)
        return card.capability

    def nvmlDeviceGetMigMode(self, card: Card) -> list[int]:
        if card.slices is None:
            raise NVMLError(3)
        return [1, 1]

    def nvmlDeviceGetMaxMigDeviceCount(self, card: Card) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, card: Card, position: int) -> Card:
        if card.slices is None or position >= len(card.slices):
            raise NVMLError(6, "Not Found")
        return card.slices[position]


def cards(count: int, gigabytes: int, name: str = "NVIDIA H200") -> tuple[Card, ...]:
    """Several of one kind, all of their memory free."""
    size = gigabytes * GB
    return tuple(Card(name, size, size, uuid=f"GPU-{position:08x}-0000") for position in range(count))
