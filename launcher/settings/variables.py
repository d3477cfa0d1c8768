"""The environment variables, in one table: what parsing, hints, the JSON schema and docs/variables.md are made from."""

from __future__ import annotations

from launcher.typing import NamedTuple

USED = "used"
INERT = "inert"  # known from NVIDIA's images, their operator or NIM 1.x: one line when set, never an error

# How each type is written, for the reference page and for errors.
TYPES = {
    "str": "text",
    "path": "path",
    "source": "absolute path or source (`hf://`, `ngc://`, `s3://`, `gs://`, `modelscope://`, `local://`)",
    "url": "URL",
    "bool": "boolean: 1/0, true/false, yes/no, on/off",
    "int": "whole number",
    "length": "whole number, also as 32k or 1M, or auto",
    "fraction": "number above 0, at most 1",
    "float": "number",
    "port": "port, 1 to 65535",
    "choice": "one of a few words, in any case",
    "list": "list, separated by commas",
    "words": "command-line words, quoted as in a POSIX shell",
    "json": "JSON object",
}


class Variable(NamedTuple):
    name: str
    group: str
    type: str  # a key of TYPES
    help: str  # what it does, one sentence without full stop; for an inert one, what takes its place
    default: str | None = None  # as a user would write it; None: not set
    flag: str | None = None  # the flag of vLLM that it stands for; for an inert one, the flag to use instead
    aliases: tuple[str, ...] = ()  # accepted with a warning
    choices: tuple[str, ...] = ()
    synonyms: tuple[tuple[str, str], ...] = ()  # what else is taken for one of the choices, in upper case
    minimum: int | None = None  # inclusive
    secret: bool = False  # also read from the file that NAME_FILE names
    status: str = USED

    @property
    def spellings(self) -> tuple[str, ...]:
        return (self.name, *self.aliases)

    @property
    def files(self) -> tuple[str, ...]:
        """The variables that name a file which holds the value."""
        return tuple(f"{spelling}_FILE" for spelling in self.spellings) if self.secret else ()


GROUPS = {
    "model": "Model and engine",
    "speculation": "Speculative decoding",
    "paths": "Paths",
    "fetch": "Fetching",
    "server": "Server and logs",
    "capture": "Payload capture",
    "adapters": "Adapters",
    "nodes": "Several nodes",
    "credentials": "Credentials",
    "standard": "Standard variables that are honoured",
    "strictness": "Strictness",
    "nim": "Known from NVIDIA NIM, without effect here",
}

_V = Variable

VARIABLES: tuple[Variable, ...] = (
    _V("NIM_MODEL_PATH", "model", "source", "the model to serve; a model on the command line wins",
       aliases=("NIM_MODEL_NAME",)),
    _V("NIM_SERVED_MODEL_NAME", "model", "list", "the names that clients ask for; derived from the source when unset",
       flag="--served-model-name"),
    _V("NIM_MODEL_PROFILE", "model", "str", "the profile to use, by id or description"),
    _V("NIM_PROFILES_PATH", "model", "path", "a folder of further profiles, which win over the built-in ones"),
    _V("NIM_ENGINE", "model", "choice", "the engine to start: vLLM's own server, or ai-dynamo's worker around it",
       default="vllm", choices=("vllm", "dynamo-vllm")),
    _V("NIM_MAX_MODEL_LEN", "model", "length", "the longest context, prompt and answer together, in tokens",
       flag="--max-model-len", minimum=1),
    _V("NIM_TENSOR_PARALLEL_SIZE", "model", "int", "the number of GPUs that share each layer",
       flag="--tensor-parallel-size", minimum=1),
    _V("NIM_PIPELINE_PARALLEL_SIZE", "model", "int", "the number of stages that the layers are split into",
       flag="--pipeline-parallel-size", minimum=1),
    _V("NIM_TRUST_CUSTOM_CODE", "model", "bool", "run Python code that comes with the target model", default="0",
       flag="--trust-remote-code", aliases=("NIM_FORCE_TRUST_REMOTE_CODE",)),
    _V("NIM_KV_CACHE_PERCENT", "model", "fraction", "the share of GPU memory that the engine may use, as a fraction",
       flag="--gpu-memory-utilization", aliases=("NIM_KVCACHE_PERCENT",)),
    _V("NIM_DISABLE_CUDA_GRAPH", "model", "bool", "run without CUDA graphs", default="0", flag="--enforce-eager"),
    _V("NIM_PASSTHROUGH_ARGS", "model", "words", "further arguments of `vllm serve`; the command line wins over them"),
    _V("NIM_DISABLE_MODEL_DOWNLOAD", "model", "bool", "never fetch anything: what is needed must be local or cached",
       default="0"),
    _V("NIM_REPOSITORY_OVERRIDE", "model", "url", "a mirror to fetch all sources from"),

    _V("NIM_SPECDEC_ENABLE", "speculation", "bool",
       "turn on speculative decoding with NIM_SPECDEC_ARGS, the model's profile or an automatic choice", default="0"),
    _V("NIM_SPECDEC_ARGS", "speculation", "json",
       "runtime-config keys over the default, such as `{\"speculative_config\": {...}}`; needs NIM_SPECDEC_ENABLE"),
    _V("NIM_DRAFT_MODEL_PATH", "speculation", "source",
       "the draft model, used whenever the effective configuration takes one"),
    _V("NIM_SPECDEC_POLICY", "speculation", "choice",
       "whether a draft or method that fails stops the start, or the server starts without speculation",
       default="required", choices=("required", "fallback")),
    _V("NIM_ENGINE_CONFIG", "speculation", "json", "an engineConfig map of hosted inference, inline or as a file path"),
    _V("NIM_SPECDEC_MIN_ACCEPTANCE", "speculation", "fraction",
       "the acceptance below which the running server warns, and `report` and `bench` fail"),

    _V("NIM_CACHE_PATH", "paths", "path", "the folder for everything that is fetched and remembered",
       default="/opt/nim/.cache"),
    _V("NIM_WORKSPACE", "paths", "path", "the folder that vLLM is pointed at; it holds links only",
       default="/opt/nim/workspace"),

    _V("NIM_REFRESH", "fetch", "choice", "whether a source that can change is asked again at each start",
       default="auto", choices=("auto", "never", "required")),
    _V("NIM_FETCH_VERIFY", "fetch", "choice", "how fetched files are checked", default="digest",
       choices=("digest", "size")),
    _V("NIM_FETCH_CONNECTIONS", "fetch", "int", "the most connections at once", minimum=1),
    _V("NIM_FETCH_INCLUDE", "fetch", "list", "patterns of the files to fetch"),
    _V("NIM_FETCH_EXCLUDE", "fetch", "list", "patterns of the files to leave out"),
    _V("NIM_LOCK_TIMEOUT", "fetch", "int", "seconds to wait for another download of the same model", minimum=0,
       default="3600"),
    _V("NIM_S3_ADDRESSING_STYLE", "fetch", "choice", "where an S3 request names its bucket", default="auto",
       choices=("auto", "path", "virtual")),
    _V("NIM_S3_REQUEST_PAYER", "fetch", "bool", "pay for requests to a requester-pays bucket", default="0"),

    _V("NIM_SERVER_PORT", "server", "port", "the port that clients connect to", default="8000", flag="--port",
       aliases=("NIM_HTTP_API_PORT",), minimum=1),
    _V("NIM_HEALTH_PORT", "server", "port", "a further port for the health routes, open from the first second on",
       minimum=1),
    _V("NIM_WARMUP", "server", "bool", "answer one request before the server listens; a failure ends the start",
       default="0"),
    _V("NIM_LOG_LEVEL", "server", "choice", "the lowest level that the launcher and vLLM log", default="INFO",
       choices=("TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"),
       synonyms=(("WARN", "WARNING"), ("FATAL", "CRITICAL"))),
    _V("NIM_JSONL_LOGGING", "server", "bool",
       "write the log as JSON lines, the launcher's and vLLM's",
       default="0"),
    _V("NIM_SSL_MODE", "server", "choice", "serve over TLS, or over TLS with client certificates", default="DISABLED",
       choices=("DISABLED", "TLS", "MTLS")),
    _V("NIM_SSL_KEY_PATH", "server", "path", "the server's private key, without a passphrase", flag="--ssl-keyfile"),
    _V("NIM_SSL_CERTS_PATH", "server", "path", "the server's certificate chain, its own first", flag="--ssl-certfile"),
    _V("NIM_SSL_CA_CERTS_PATH", "server", "path", "the authority that signs client certificates; needed by MTLS",
       flag="--ssl-ca-certs"),
    _V("NIM_CORS_ALLOW_ORIGINS", "server", "list", "origins that browsers may call from, or `*`; none when unset",
       flag="--allowed-origins"),
    _V("NIM_CORS_ALLOW_METHODS", "server", "list", "methods that browsers may use", flag="--allowed-methods"),
    _V("NIM_CORS_ALLOW_HEADERS", "server", "list", "request headers that browsers may send", flag="--allowed-headers"),
    _V("NIM_CORS_EXPOSE_HEADERS", "server", "list", "response headers that browsers may read"),
    _V("NIM_CORS_MAX_AGE", "server", "int", "seconds for which browsers may remember the answer", minimum=0),

    _V("NIM_CAPTURE_ENABLE", "capture", "bool", "record the requests for a replay (capture.md)", default="0"),
    _V("NIM_CAPTURE_ARGS", "capture", "json",
       "where, how and which requests are recorded: `path`, `format`, `endpoint_pattern`, `max_bytes`, `max_files`, "
       "`sample`"),

    _V("NIM_PEFT_SOURCE", "adapters", "path", "a folder whose sub-folders are LoRA adapters", flag="--lora-modules"),

    _V("NIM_NUM_COMPUTE_NODES", "nodes", "int", "the number of nodes that serve one model together (vLLM: `--nnodes`)",
       minimum=1),
    _V("NIM_NODE_RANK", "nodes", "int", "this node's number; 0 leads (vLLM: `--node-rank`)", minimum=0),
    _V("NIM_LEADER_ROLE", "nodes", "bool",
       "whether this node leads; of two nodes it says the rank, of more it is compared with it"),
    _V("NIM_LEADER_IP_ADDRESS", "nodes", "str", "the leader's address, the same on every node; wins over "
       "LWS_LEADER_ADDRESS (vLLM: `--master-addr`)"),
    _V("LWS_LEADER_ADDRESS", "nodes", "str", "LeaderWorkerSet: the leader's address"),
    _V("LWS_GROUP_SIZE", "nodes", "int", "LeaderWorkerSet: the number of pods in the group", minimum=1),
    _V("LWS_WORKER_INDEX", "nodes", "int", "LeaderWorkerSet: this pod's number; 0 leads", minimum=0),

    _V("NGC_CLI_API_KEY", "credentials", "str", "key for NVIDIA NGC; wins over NGC_API_KEY", secret=True),
    _V("NGC_API_KEY", "credentials", "str", "key for NVIDIA NGC, personal or legacy", secret=True),
    _V("HF_TOKEN", "credentials", "str", "token for Hugging Face", secret=True, aliases=("HUGGING_FACE_HUB_TOKEN",)),
    _V("MODELSCOPE_API_TOKEN", "credentials", "str", "token for ModelScope", secret=True),
    _V("AWS_ACCESS_KEY_ID", "credentials", "str", "name of the key for S3", secret=True),
    _V("AWS_SECRET_ACCESS_KEY", "credentials", "str", "key for S3", secret=True),
    _V("AWS_SESSION_TOKEN", "credentials", "str", "token of a temporary key for S3", secret=True),
    _V("VLLM_API_KEY", "credentials", "str", "the key that clients must send", secret=True),
    _V("GOOGLE_APPLICATION_CREDENTIALS", "credentials", "path", "credentials file for Google Cloud Storage"),

    _V("HF_ENDPOINT", "standard", "url", "another address of the Hugging Face hub"),
    _V("HF_HUB_OFFLINE", "standard", "bool", "use no network", default="0"),
    _V("TRANSFORMERS_OFFLINE", "standard", "bool", "use no network", default="0"),
    _V("HF_HOME", "standard", "path", "the Hugging Face folder; its cache is read as well"),
    _V("HF_TOKEN_PATH", "standard", "path", "the file that holds the Hugging Face token, where HF_TOKEN is not set"),
    _V("HF_HUB_DISABLE_IMPLICIT_TOKEN", "standard", "bool", "send no token from that file", default="0"),
    _V("HF_HUB_DISABLE_XET", "standard", "bool", "do without hf-xet", default="0"),
    _V("MODELSCOPE_ENDPOINT", "standard", "url", "another address of ModelScope"),
    _V("GOOGLE_CLOUD_QUOTA_PROJECT", "standard", "str", "the project that pays for requester-pays buckets on Google"),
    _V("ALL_PROXY", "standard", "url", "the proxy where no other is named; the lower-case name works too"),
    _V("CURL_CA_BUNDLE", "standard", "path", "certificate authorities to trust"),
    _V("HF_HUB_CACHE", "standard", "path", "the Hugging Face cache; it is read as well"),
    _V("AWS_PROFILE", "standard", "str", "the section of the AWS configuration to use"),
    _V("AWS_REGION", "standard", "str", "the AWS region"),
    _V("AWS_DEFAULT_REGION", "standard", "str", "the AWS region, where AWS_REGION is not set"),
    _V("AWS_ENDPOINT_URL_S3", "standard", "url", "the address of an S3-compatible store"),
    _V("AWS_ENDPOINT_URL", "standard", "url", "the address of an S3-compatible store, after AWS_ENDPOINT_URL_S3"),
    _V("AWS_CA_BUNDLE", "standard", "path", "certificate authorities to trust for AWS"),
    _V("AWS_CONFIG_FILE", "standard", "path", "the AWS configuration"),
    _V("AWS_SHARED_CREDENTIALS_FILE", "standard", "path", "the AWS credentials file"),
    _V("AWS_ROLE_ARN", "standard", "str", "the role to assume on AWS"),
    _V("AWS_WEB_IDENTITY_TOKEN_FILE", "standard", "path", "the web identity to assume a role with"),
    _V("STORAGE_EMULATOR_HOST", "standard", "url", "the address of a store that stands in for Google Cloud Storage"),
    _V("NGC_CLI_API_URL", "standard", "url", "another address of NGC"),
    _V("NGC_CLI_AUTH_URL", "standard", "url", "another address of NGC's token service"),
    _V("NGC_CLI_ORG", "standard", "str", "the NGC organisation"),
    _V("NGC_CLI_TEAM", "standard", "str", "the NGC team"),
    _V("HTTP_PROXY", "standard", "url", "the proxy for http; the lower-case name works too"),
    _V("HTTPS_PROXY", "standard", "url", "the proxy for https; the lower-case name works too"),
    _V("NO_PROXY", "standard", "list", "hosts to reach without proxy; the lower-case name works too"),
    _V("SSL_CERT_FILE", "standard", "path", "certificate authorities to trust"),
    _V("REQUESTS_CA_BUNDLE", "standard", "path", "certificate authorities to trust"),
    _V("VLLM_LOGGING_CONFIG_PATH", "standard", "path",
       "vLLM's own logging configuration, in place of the one that the launcher writes"),
    _V("VLLM_LOGGING_LEVEL", "standard", "str", "vLLM's own log level; wins over NIM_LOG_LEVEL for vLLM"),
    _V("VLLM_NO_USAGE_STATS", "standard", "bool", "vLLM reports nothing", default="1"),
    _V("DO_NOT_TRACK", "standard", "bool", "nothing is reported to anyone", default="1"),

    _V("NIM_STRICT", "strictness", "bool", "an unknown NIM_ variable is an error", default="0"),

    _V("NIM_GPU_MEM_FRACTION", "nim", "fraction", "use NIM_KV_CACHE_PERCENT", status=INERT),
    _V("NIM_MAX_BATCH_SIZE", "nim", "int", "vLLM batches by itself", flag="--max-num-seqs", status=INERT),
    _V("NIM_MAX_NUM_SEQS", "nim", "int", "an argument of vLLM", flag="--max-num-seqs", status=INERT),
    _V("NIM_ENABLE_KV_CACHE_REUSE", "nim", "bool", "vLLM reuses prefixes by default", flag="--enable-prefix-caching",
       status=INERT),
    _V("NIM_TOOL_CALL_PARSER", "nim", "str", "an argument of vLLM", flag="--tool-call-parser", status=INERT),
    _V("NIM_ENABLE_AUTO_TOOL_CHOICE", "nim", "bool", "an argument of vLLM", flag="--enable-auto-tool-choice",
       status=INERT),
    _V("NIM_TOOL_PARSER_PLUGIN", "nim", "path", "an argument of vLLM", flag="--tool-parser-plugin", status=INERT),
    _V("NIM_CHAT_TEMPLATE", "nim", "path", "an argument of vLLM", flag="--chat-template", status=INERT),
    _V("NIM_MAX_LORA_RANK", "nim", "int", "an argument of vLLM", flag="--max-lora-rank", status=INERT),
    _V("NIM_MAX_GPU_LORAS", "nim", "int", "an argument of vLLM", flag="--max-loras", status=INERT),
    _V("NIM_MAX_CPU_LORAS", "nim", "int", "an argument of vLLM", flag="--max-cpu-loras", status=INERT),
    _V("NIM_CUSTOM_MODEL_NAME", "nim", "str", "use NIM_SERVED_MODEL_NAME", status=INERT),
    _V("NIM_FT_MODEL", "nim", "path", "use NIM_MODEL_PATH", status=INERT),
    _V("NIM_TAGS_SELECTOR", "nim", "str", "use NIM_MODEL_PROFILE", status=INERT),
    _V("NIM_SSL_CERT_PATH", "nim", "path", "use SSL_CERT_FILE", status=INERT),
    _V("NIM_SDK_USE_NATIVE_TLS", "nim", "bool", "the system's certificate authorities are trusted", status=INERT),
    _V("NIM_CACHE_PROBE_TIMEOUT", "nim", "int", "the cache is not probed", status=INERT),
    _V("NIM_MANIFEST_ALLOW_UNSAFE", "nim", "bool", "no manifest is refused as unsafe", status=INERT),
    _V("NIM_NGINX_DIR", "nim", "path", "there is no proxy", status=INERT),
    _V("NIM_MIDDLEWARE_CONFIG_PATH", "nim", "path", "the middleware is configured by the launcher", status=INERT),
    _V("NIM_SAGEMAKER_MODE", "nim", "bool", "there is no SageMaker mode", status=INERT),
    _V("NIM_TELEMETRY_MODE", "nim", "str", "nothing is reported to anyone", status=INERT),
    _V("NIM_PEFT_REFRESH_INTERVAL", "nim", "int", "adapters are read once, at the start", status=INERT),
    _V("NIM_PEFT_API_TIMEOUT_SECS", "nim", "int", "adapters are read once, at the start", status=INERT),
    _V("NIM_PER_REQ_METRICS_ENABLE", "nim", "bool", "vLLM's own metrics are always there", status=INERT),
    _V("NIM_ENABLE_OTEL", "nim", "bool", "use vLLM's own tracing", flag="--otlp-traces-endpoint", status=INERT),
    _V("NIM_OTEL_SERVICE_NAME", "nim", "str", "use OTEL_SERVICE_NAME", status=INERT),
    _V("NIM_OTEL_TRACES_EXPORTER", "nim", "str", "use vLLM's own tracing", status=INERT),
    _V("NIM_OTEL_METRICS_EXPORTER", "nim", "str", "vLLM's metrics are scraped", status=INERT),
    _V("NIM_OTEL_EXPORTER_OTLP_ENDPOINT", "nim", "url", "use vLLM's own tracing", flag="--otlp-traces-endpoint",
       status=INERT),
    _V("NIM_GUIDED_DECODING_BACKEND", "nim", "str", "an argument of vLLM", flag="--structured-outputs-config",
       status=INERT),
    _V("NIM_CUSTOM_GUIDED_DECODING_BACKENDS", "nim", "path", "vLLM has its own backends", status=INERT),
    _V("NIM_LOW_MEMORY_MODE", "nim", "bool", "there is no such mode", status=INERT),
    _V("NIM_RELAX_MEM_CONSTRAINTS", "nim", "bool", "only weights that cannot fit are refused", status=INERT),
    _V("NIM_SCHEDULER_POLICY", "nim", "str", "vLLM has its own scheduler", status=INERT),
    _V("NIM_NUM_KV_CACHE_SEQ_LENS", "nim", "int", "use NIM_KV_CACHE_PERCENT", status=INERT),
    _V("NIM_KV_CACHE_HOST_MEM_FRACTION", "nim", "fraction", "an argument of vLLM, in GiB", flag="--kv-offloading-size",
       status=INERT),
    _V("NIM_FORCE_DETERMINISTIC", "nim", "bool", "there is no such mode", status=INERT),
    _V("NIM_GRPC_API_PORT", "nim", "port", "there is no gRPC server", status=INERT),
    _V("NIM_TRITON_GRPC_PORT", "nim", "port", "there is no Triton server", status=INERT),
    _V("NIM_TRITON_METRICS_PORT", "nim", "port", "there is no Triton server", status=INERT),
    _V("NIM_MULTI_NODE", "nim", "bool", "use NIM_NUM_COMPUTE_NODES", status=INERT),
    _V("NIM_PRIMARY_NODE", "nim", "str", "use NIM_LEADER_IP_ADDRESS", status=INERT),
    _V("NIM_MPI_ALLOW_RUN_AS_ROOT", "nim", "bool", "there is no MPI", status=INERT),
    _V("NIM_DYNAMO_SINGLE", "nim", "bool", "use NIM_ENGINE=dynamo-vllm beside Dynamo's own frontend", status=INERT),
    _V("NIM_DYNAMO_WORKER", "nim", "bool", "use NIM_ENGINE=dynamo-vllm", status=INERT),
    _V("NIM_DYNAMO_FRONTEND", "nim", "bool", "run Dynamo's own frontend", status=INERT),
)  # fmt: skip

BY_NAME: dict[str, Variable] = {row.name: row for row in VARIABLES}
# Every name that is read as some variable: its own, and the aliases.
CANONICAL: dict[str, str] = {alias: row.name for row in VARIABLES for alias in row.spellings}
# NIM_ names that NVIDIA's images do not have; all others are theirs (docs/migration.md is made from that).
OURS: frozenset[str] = frozenset(
    (
        "NIM_ENGINE",
        "NIM_ENGINE_CONFIG",
        "NIM_FETCH_CONNECTIONS",
        "NIM_FETCH_EXCLUDE",
        "NIM_FETCH_INCLUDE",
        "NIM_FETCH_VERIFY",
        "NIM_LOCK_TIMEOUT",
        "NIM_PROFILES_PATH",
        "NIM_REFRESH",
        "NIM_S3_ADDRESSING_STYLE",
        "NIM_S3_REQUEST_PAYER",
        "NIM_SPECDEC_MIN_ACCEPTANCE",
        "NIM_SPECDEC_POLICY",
        "NIM_STRICT",
        "NIM_WARMUP",
        "NIM_WORKSPACE",
    )
)
