"""Which targets have a multi-token-prediction head that vLLM can run, and how deep it is by their config.json.

vLLM rewrites a target's configuration into one of its MTP types; the rows below are that rewriting.  Whether the head's
tensors are really in the checkpoint is another question: `Weights.head` answers it.
"""

from __future__ import annotations

from launcher.checkpoint import Config
from launcher.typing import NamedTuple
from launcher.vllm.tables import EngineTable


class Family(NamedTuple):
    """An MTP type of vLLM that a configuration belongs to."""

    name: str  # "deepseek_mtp" …
    tokens: int | None  # depth (n_predict); None: the config is silent and so is vLLM; 0: vLLM cannot run it
    stated: bool  # ``tokens`` stands in the config; otherwise it is what vLLM assumes
    standalone: bool = False  # the whole repository is the head: it is a draft, not a target

    @property
    def layers(self) -> int | None:
        """How many layers of the head vLLM loads, as far as config.json says; None when it does not."""
        if not self.stated or self.tokens is None:
            return None
        if self.name == "longcat_flash_mtp":
            return 1
        # Checkpoints of HY V4 count one more than they hold, unless they count 1.
        return max(self.tokens - 1, 1) if self.name == "hy_v4_mtp" else self.tokens


class _Row(NamedTuple):
    name: str
    field: str = "num_nextn_predict_layers"
    # Depth when the field is missing, as the configuration classes have it; 0 where the head then cannot be built.
    absent: int | None = None
    fixed: int | None = None  # depth whatever the config says
    other: str = ""  # a second field, read when the first is missing
    standalone: bool = False


_MIMO_V2 = _Row("mimo_v2_mtp", fixed=1)  # vLLM loads the first of its layers only
_STEP = _Row("step3p5_mtp", absent=0)
_STEP5 = _Row("step5_mtp", absent=1)
_MINIMAX = _Row("minimax_m3_mtp", "num_mtp_modules", absent=1)
_NEMOTRON = _Row("nemotron_h_mtp")
_QWEN3_5 = _Row("qwen3_5_mtp", "mtp_num_hidden_layers")
_QWEN4 = _Row("qwen4_exp_mtp", "mtp_num_hidden_layers", other="num_nextn_predict_layers")
_MTP_LAYERS = "num_mtp_layers"  # the field's name in Transformers 5, for the families whose classes know both
_DEEPSEEK = _Row("deepseek_mtp", other=_MTP_LAYERS)
_BAILING = _Row("bailing_hybrid_mtp", absent=0)
_BAILING_V3 = _Row("bailing_hybrid_v3_mtp", absent=0)
_INKLING = _Row("inkling_mtp", "mtp_config.num_nextn_predict_layers", absent=0)
_EXAONE4_5 = _Row("exaone4_5_mtp")
_LONGCAT = _Row("longcat_flash_mtp", absent=1)
_GEMMA4 = _Row("gemma4_mtp", fixed=1, standalone=True)

_BY_ARCHITECTURE = {
    "MiMoForCausalLM": _Row("mimo_mtp", absent=0),
    "MiMoV2ForCausalLM": _MIMO_V2,
    "MiMoV2OmniForCausalLM": _MIMO_V2,
    "MiMoV2FlashForCausalLM": _MIMO_V2,
    "Glm4MoeForCausalLM": _Row("glm4_moe_mtp", other=_MTP_LAYERS),
    "Glm4MoeLiteForCausalLM": _Row("glm4_moe_lite_mtp", absent=0),
    "GlmOcrForConditionalGeneration": _Row("glm_ocr_mtp", absent=0),
    "BailingMoeV2_5ForCausalLM": _BAILING,
    "BailingMoeV3ForCausalLM": _BAILING_V3,
    "BailingMoeV3VLForConditionalGeneration": _BAILING_V3,
    "Step3p5ForCausalLM": _STEP,
    "Step3p7ForConditionalGeneration": _STEP,
    "Step5ForCausalLM": _STEP5,
    "Step5ForConditionalGeneration": _STEP5,
    "MiniMaxM3SparseForConditionalGeneration": _MINIMAX,
    "MiniMaxM3MTP": _Row("minimax_m3_mtp", "num_mtp_modules", absent=1, standalone=True),
    "LongcatFlashForCausalLM": _LONGCAT,  # by name, since their config.json may lack model_type
    "LongcatFlashNgramForCausalLM": _LONGCAT,
}

_BY_MODEL_TYPE = {
    "deepseek_v3": _DEEPSEEK,
    "deepseek_v32": _DEEPSEEK,
    "deepseek_v4": _Row("deepseek_mtp"),
    "glm_moe_dsa": _Row("deepseek_mtp", absent=0),
    "dots3_note": _Row("dots3_note_mtp", absent=1),
    "pangu_ultra_moe": _Row("pangu_ultra_moe_mtp", absent=0),
    "kimi_k3": _Row("kimi_k3_mtp", absent=0),
    "glm5_next": _Row("glm5_next_mtp", absent=0),
    "ernie4_5_moe": _Row("ernie_mtp", absent=0),
    "nemotron_h": _NEMOTRON,
    "nemotron_h_puzzle": _NEMOTRON,
    "qwen3_next": _Row("qwen3_next_mtp"),
    "qwen3_5": _QWEN3_5,
    "qwen3_5_moe": _QWEN3_5,
    "qwen3_5_text": _QWEN3_5,
    "qwen3_5_moe_text": _QWEN3_5,
    "intern_s2_preview": _QWEN3_5,
    "interns2_mobius": _QWEN3_5,
    "qwen4_exp": _QWEN4,
    "qwen4_exp_text": _QWEN4,
    "bailing_hybrid": _BAILING,
    "exaone_moe": _Row("exaone_moe_mtp"),
    "longcat_flash": _LONGCAT,
    "step3p5": _STEP,
    "step3p7": _STEP,
    "step5": _STEP5,
    "step5_vl": _STEP5,
    "hy_v3": _Row("hy_v3_mtp", absent=0),
    "hy_v4": _Row("hy_v4_mtp", absent=1),
    "inkling_mm_model": _INKLING,
    "inkling_model": _INKLING,
    "minimax_m3_vl": _MINIMAX,
    "gemma4_assistant": _GEMMA4,
    "gemma4_unified_assistant": _GEMMA4,
    # Heads published on their own, with the rewritten type already in their config.json.
    "deepseek_mtp": _Row("deepseek_mtp", absent=0, standalone=True),
    "pangu_ultra_moe_mtp": _Row("pangu_ultra_moe_mtp", absent=0, standalone=True),
    "ernie_mtp": _Row("ernie_mtp", absent=0, standalone=True),
    "nemotron_h_mtp": _Row("nemotron_h_mtp", absent=1, standalone=True),
    "qwen3_next_mtp": _Row("qwen3_next_mtp", standalone=True),
    "qwen4_exp_mtp": _Row("qwen4_exp_mtp", "mtp_num_hidden_layers", other="num_nextn_predict_layers", standalone=True),
    "exaone_moe_mtp": _Row("exaone_moe_mtp", standalone=True),
    "minimax_m3_mtp": _Row("minimax_m3_mtp", "num_mtp_modules", absent=1, standalone=True),
}

# Wrappers whose text part is a Nemotron-H of its own.
_NEMOTRON_OMNI = ("NemotronH_Super_Omni_Reasoning_V3", "NemotronH_Omni_Reasoning_V3")

# Families whose layers are trained one for each token: more tokens than one is not the same layer run again.
CHAINED = frozenset({"step3p5_mtp", "step5_mtp", "inkling_mtp"})

ANOTHER_METHOD = "Choose another method, such as ngram"


class LookAlike(NamedTuple):
    """Why a configuration that seems to promise an MTP head is none for vLLM, and what to do instead."""

    why: str
    todo: str = ANOTHER_METHOD


_LOOK_ALIKES = {
    "deepseek_v41": LookAlike(
        "DeepSeek V4.1 ships DSpark stages under mtp.*, not an MTP head", "Choose the method dspark"
    ),
    "minimax_m2": LookAlike(
        "MiniMax-M2 configs count MTP modules, but their weights were never published and vLLM has no class"
    ),
    "kimi_k2": LookAlike("Kimi-K2 keeps the DeepSeek field, but has no MTP layers and is no MTP family of vLLM"),
    "kimi_k25": LookAlike("Kimi-K2.5 keeps the DeepSeek field, but has no MTP layers and is no MTP family of vLLM"),
    "gemma4": LookAlike(
        "Gemma 4's head is a repository of its own (…-assistant)", "Give that one's folder as NIM_DRAFT_MODEL_PATH"
    ),
}
_LOOK_ALIKES["gemma4_unified"] = _LOOK_ALIKES["gemma4"]


def mtp_family(config: Config, table: EngineTable | None = None) -> Family | None:
    """The MTP family of a configuration, or None.

    With ``table``, only what that vLLM version runs: its types, and (from 0.33 on) heads of models that it serves
    through Transformers.
    """
    row = _row(config)
    if row is None:
        return _special(config, table)
    family = _read(config, row)
    if row is _NEMOTRON and not family.tokens:
        return None  # vLLM takes a Nemotron-H for an MTP model only where the field is there and positive
    return family if table is None or family.name in table.mtp_types else None


def depth_field(config: Config) -> str:
    """Where a configuration of a known family states how deep its head is."""
    row = _row(config)
    return row.field if row is not None else _MTP_LAYERS


def mtp_types() -> frozenset[str]:
    """Every name that some vLLM version uses for a kind of MTP head; all are spellings of the method ``mtp``."""
    rows = (*_BY_ARCHITECTURE.values(), *_BY_MODEL_TYPE.values(), _EXAONE4_5)
    return frozenset({"mtp", *(row.name for row in rows)})


def look_alike(config: Config) -> LookAlike | None:
    """What is to be said of a configuration that seems to promise an MTP head and is none for vLLM."""
    return _LOOK_ALIKES.get(config.model_type)


def _row(config: Config) -> _Row | None:
    if config.architecture in _NEMOTRON_OMNI:
        return _NEMOTRON if config.text.get("model_type") in ("nemotron_h", "nemotron_h_puzzle") else None
    row = _BY_ARCHITECTURE.get(config.architecture) or _BY_MODEL_TYPE.get(config.model_type)
    if row is None and "exaone4_5" in config.model_type:
        return _EXAONE4_5
    return row


def _read(config: Config, row: _Row) -> Family:
    if row.fixed is not None:
        return Family(row.name, row.fixed, False, row.standalone)
    for field in (row.field, row.other):
        stated = _number(config, field) if field else None
        if stated is not None:
            return Family(row.name, max(stated, 0), True, row.standalone)
    return Family(row.name, row.absent, False, row.standalone)


def _number(config: Config, field: str) -> int | None:
    """An integer field of the text configuration or of the document; ``a.b`` looks inside ``a``."""
    section, _, name = field.rpartition(".")
    for mapping in (config.text, config.document):
        inner = mapping.get(section) if section else mapping
        value = inner.get(name) if isinstance(inner, dict) else None
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def _special(config: Config, table: EngineTable | None) -> Family | None:
    """Heads that vLLM names plainly "mtp": Nemotron Parse, and models served through Transformers (0.33)."""
    decoder = config.document.get("decoder")
    if config.architecture == "RadioMBartPrefixForCausalLM":
        trained = isinstance(decoder, dict) and bool(decoder.get("causal_vision_prefix"))
        known = table is None or "ParseAuxMTPModel" in table.architectures
        return Family("mtp", 1, False) if trained and known else None
    layers = _number(config, _MTP_LAYERS)
    if layers is None or table is None or config.text is not config.document:
        return None
    if config.architecture in table.architectures or "TransformersForMTP" not in table.architectures:
        return None
    return Family("mtp", max(layers, 0), True)
