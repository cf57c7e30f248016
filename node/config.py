"""Configuration of a node: one typed object from a TOML file, the environment and flags.

Order of precedence: flags, then environment (``TARRY_LIMITS__BODY_BYTES_MAX=1000``),
then the file, then the defaults here. A key that does not exist is an error.
"""

from __future__ import annotations

import os
import re
import ssl
import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from tomllib import TOMLDecodeError
from typing import Annotated, Any, Final, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    FilePath,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from tarry.replication.journal.power_loss import BOOT_ID

NODE_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
ADDRESS: Final = re.compile(r"\S+:\d{1,5}")
"""Of a node, as other nodes reach it."""
CLASSIC_DELAY_LEVELS_MS = tuple(
    seconds * 1000
    for seconds in (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
)
YEAR_MS: Final = 365 * 86_400_000
BACK_OFF_MS = (1_000, 5_000, 10_000, 30_000, 60_000, 120_000, 300_000, 600_000, 1_800_000, 3_600_000)
CHECK_PAUSES_MS = (10_000, 30_000, 60_000, 120_000, 300_000, 600_000, 1_200_000, 1_800_000, 3_600_000)

HIDDEN: Final = "***"

ENVIRONMENT: Final = "TARRY_"
"""Begins the names of the environment's variables."""
OTHERS: Final = frozenset(
    {
        *("TARRY_SERVER", "TARRY_TOKEN", "TARRY_TLS_CA", "TARRY_TLS_CERTIFICATE", "TARRY_TLS_KEY"),  # clients
        *("TARRY_FLUSHED", "TARRY_FSYNC", "TARRY_TOXIPROXY"),  # tarry.chaos
    }
)
"""Those of tarry's other programs."""
SECRET: Final = "TARRY_TOKEN"
"""In a name that begins so, and is none, what follows may be a token."""
KUBERNETES: Final = re.compile(r"_(SERVICE_(HOST|PORT)|PORT)(_|$)")
"""Names of variables that Kubernetes sets in every container of a Service whose name begins with tarry."""

IN_TOKENS_FILE: Final = frozenset({"tokens", "peer_token", "peer_tokens_accepted"})

Count = Annotated[int, Field(ge=1)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _with_port(listen: str) -> str:
    """Return an address to listen at, or none. Raises ValueError."""
    if listen and int(listen.rpartition(":")[2]) > 65_535:
        raise ValueError("a port is 65535 at most")
    return listen


class Limits(_Section):
    """Limits of a request. Every refusal names the limit that it hit."""

    topic_chars_max: Count = 200
    group_chars_max: Count = 100
    body_bytes_max: Count = 256 << 10
    properties_max: int = Field(default=64, ge=0)
    keys_max: int = Field(default=16, ge=0)
    tags_max: int = Field(default=16, ge=0)
    filter_tags_max: Count = 1_000
    filter_chars_max: Annotated[int, Field(ge=1, le=2_048)] = 2_048  # of a filter by properties
    filter_tests_max: Annotated[int, Field(ge=1, le=1_000)] = 100  # comparisons in it; CONTAINS counts as 10
    filter_depth_max: Annotated[int, Field(ge=0, le=100)] = 32  # levels of parentheses and NOT in it
    ordering_key_chars_max: Count = 128
    idempotency_key_chars_max: Count = 256
    record_overhead_bytes_max: Count = 64 << 10  # tags, keys and properties together
    batch_messages_max: Annotated[int, Field(ge=1, le=65_536)] = 4_096
    batch_bytes_max: Count = 4 << 20
    batch_topics_max: Count = 1_024  # each is made, and may get its message at once, with one command

    @property
    def retries_bytes_max(self) -> int:
        """Bytes of records that are retried or redriven with one command, a lone record aside."""
        return self.batch_bytes_max // 4

    @property
    def offsets_max(self) -> int:
        """In one request of a consumer: what it has in hand, and its verdicts that wait for an answer."""
        return 5 * self.credit_max + 4_000

    cancel_ids_max: Count = 4_096
    reschedule_ids_max: Count = 1_024
    due_horizon_ms: Annotated[int, Field(ge=1, le=7_000 * YEAR_MS)] = 100 * YEAR_MS  # how far ahead
    jitter_ms_max: Annotated[int, Field(ge=0, lt=1 << 32)] = 7 * 86_400_000
    second_messages_max: Count = 4_000_000  # pending that are due in one second; the leader's counts
    queues_max: Count = 20_000  # one for each topic, and for each group of one; beyond, none are made
    producers_max: Count = 100_000  # not silent for producer_silent_ms; beyond, new ones are refused
    producer_silent_ms: Annotated[int, Field(ge=1, le=YEAR_MS)] = 300_000  # 20 times a client's deadline
    recurring_max: Count = 100_000  # schedules that recur
    recurring_bytes_max: Count = 64 << 20  # of their names, specifications and records together
    # a fire is decided half a second ahead: of those of one schedule one at a time
    recurring_interval_ms_min: Annotated[int, Field(ge=1_000)] = 1_000
    transactions_max: Count = 100_000  # open ones: prepared, and neither committed nor rolled back
    transactions_remembered_max: Count = 50_000  # that have ended, the latest: a second end is answered
    check_streams_max: Count = 1_000  # of producers that answer checks, on one node
    disk_free_bytes_min: int = Field(default=256 << 20, ge=0)  # with less, schedules are refused
    stream_requests_max: Count = 32  # in flight on one ScheduleStream
    consumers_max: Count = 1_000  # consumer streams on one node
    subscribed_topics_max: Count = 1_000  # of one stream
    credit_max: Count = 100_000


class Delivery(_Section):
    """Leases, retries and deliveries."""

    lease_ms: Count = 30_000
    lease_ms_min: Count = 100
    lease_ms_max: Count = 12 * 3_600_000
    attempts_max: Count = 16
    back_off_ms: tuple[Count, ...] = BACK_OFF_MS
    wait_ms_max: Count = 30_000  # of one Receive
    resume_ms: Count = 1_000  # after a crash, for consumers to come back before others get what they may have
    in_hand_bytes_max: Count = 64 << 20  # of one consumer
    reserved_messages_max: Count = 8_192  # of a group and queue: what the crash of a leader may repeat
    batch_messages_max: Count = 1_000  # delivered in one response
    batch_bytes_max: Count = 1 << 20


class CheckTimes(_Section):
    """Times of checks: producers are asked how a transaction ended of which no word has come."""

    check_after_ms: Count = 30_000  # from the prepare to the first check
    check_pauses_ms: tuple[Count, ...] = CHECK_PAUSES_MS  # behind each check; then the last
    checks_max: Annotated[int, Field(ge=1, le=1_000)] = 15  # then the transaction is rolled back

    @model_validator(mode="after")
    def _has_pauses(self) -> CheckTimes:
        if not self.check_pauses_ms:
            raise ValueError("check_pauses_ms names one pause at least")
        return self


class TransactionSettings(CheckTimes):
    """Checks of transactions, where no table of the producer group says otherwise."""

    groups: dict[str, CheckTimes] = {}  # by producer group
    checks_per_s_max: Count = 1_000  # handed over by the leader, of those that come due together

    def of(self, producer_group: str) -> CheckTimes:
        """Return what counts for a producer group."""
        return self.groups.get(producer_group, self)


class Dispatch(_Section):
    """The release of due messages."""

    period_ms: Count = 50  # between releases
    commit_ms: Count = 50  # allowed for committing a release before its first message is due, at least
    commit_ms_max: Count = 500  # at most: commits are allowed what they have been seen to take
    slice_messages_max: Count = 10_000  # of one release; a second with more is released earlier
    slices_max: Count = 8  # released with one commit, while a backlog lasts
    overtaking_messages_max: Annotated[int, Field(ge=0, le=65_536)] = 4_096  # of others, with such a commit
    ahead_ms_max: Count = 8_000  # how much earlier at most
    retention_ms: Count = 3 * 86_400_000  # of released messages, where a topic says nothing else
    retention_check_ms: Count = 60_000
    group_expiry_ms: Annotated[int, Field(ge=0)] = 7 * 86_400_000  # of one made by a consumer; 0: never
    temporary_group_ms: Count = 300_000  # for which a temporary group waits for its consumer to come back
    idempotency_window_ms: Count = 3_600_000  # so long behind its release a message's idempotency key counts
    clock_offset_ms_max: Count = 250  # of a node's own clock against cluster time; beyond, it is wrong
    clock_wrong_ms_max: Count = (
        3_000  # for so long a leader's clock may be wrong; then it transfers leadership
    )
    checkpoint_ms: Count = 5_000
    journal_retained_bytes: Count = 64 << 20  # kept for slow followers; who lacks more takes a snapshot
    journal_snapshot_bytes: Count = 1 << 30  # kept behind a state while somebody takes it
    scrub_pass_ms: Count = 86_400_000  # in which every hour partition is looked at for damage
    scrub_step_ms_max: Count = 60_000  # between two of them, however few there are
    scrub_bytes_per_s: Count = 32 << 20  # read in looking at one


class LedgerSettings(_Section):
    """Ledger of the node's events, for the Spark job."""

    enabled: bool = True
    folder: Path | None = None  # none: ledger in the data folder
    flush_ms: Count = 200  # rows wait so long at most for the file; what they are lost by at kill -9
    buffer_bytes_max: Count = 64 << 20  # of rows in memory while the disk is slow; then they are dropped
    segment_rows_max: Count = 1_000_000
    segment_ms: Count = 60_000
    retention_ms: Count = 7 * 86_400_000  # of closed segments
    disk_bytes_max: Count = 2 << 30  # of closed segments; the oldest go
    disk_free_bytes_min: Count = 256 << 20  # with less free space nothing is written
    export_rows_max: Count = 10_000  # in one response of ExportLedger
    exports_max: Count = 2  # under way at once


class BackupSettings(_Section):
    """Bounds on backups and exports of pending messages: no file is deleted while one is open."""

    backups_max: Count = 1  # under way at once
    exports_max: Count = 1  # the same of exports
    stall_ms: Count = 60_000  # for the operator to take a part of one
    duration_ms_max: Count = 6 * 3_600_000  # of one


class Consensus(_Section):
    """Times of Raft; equal on all nodes. Longer ones bear a slower machine, and make failover slower."""

    heartbeat_ms: Count = 50  # while anything changes; each carries the dispatch state
    quiet_heartbeat_ms: Count = 250  # while nothing changes; failover then takes that much longer
    election_min_ms: Count = 300
    election_max_ms: Count = 600
    fallback_ms: Count = 250  # a leader that hears no majority for this long steps down
    write_stall_ms_max: Count = 1_000  # a leader whose journal write stalls sends heartbeats for so long

    @model_validator(mode="after")
    def _ordered(self) -> Consensus:
        if not 3 * self.heartbeat_ms < self.election_min_ms < self.election_max_ms:
            raise ValueError("3 * heartbeat_ms < election_min_ms < election_max_ms must hold")
        if self.quiet_heartbeat_ms < self.heartbeat_ms:
            raise ValueError("quiet_heartbeat_ms must not be less than heartbeat_ms")
        if not self.heartbeat_ms < self.fallback_ms < self.election_min_ms:
            raise ValueError("heartbeat_ms < fallback_ms < election_min_ms must hold")
        return self


class Upgrade(_Section):
    """The cluster's level, which says what the commands of its log may be."""

    finish: Literal["auto", "manual"] = "auto"  # raised once all members can, or when an operator says so


class Connections(_Section):
    """Bounds on what callers hold of a node, before it knows them and after."""

    connections_max: Count = (
        10_000  # of clients and nodes; never more than half of the files that may be open
    )
    handshake_ms: Count = 5_000  # in which a new connection has to speak HTTP/2, and TLS
    idle_ms: Count = 600_000  # a connection without calls is closed; clients open another by themselves
    connection_calls_max: Count = 1_024  # at once; a client lets more wait
    calls_max: Count = 10_000  # at once, of all connections
    waiting_calls_max: Count = 1_000  # calls whose request has not come; of more, the oldest is ended
    request_ms: Count = 30_000  # in which a call's request, or its first, has to have come
    subscribe_ms: Count = 5_000  # the same for a consumer's stream, whose first request is small


class AuditSettings(_Section):
    """Record of operators' calls."""

    file: Path | None = None  # none: none is kept
    file_bytes_max: Annotated[int, Field(ge=64 << 10)] = 16 << 20  # then it is followed by another
    files_max: Annotated[int, Field(ge=2, le=1_000)] = 8  # with the older ones; the oldest goes
    required: bool = False  # a call that cannot be recorded is refused


class MetricsSettings(_Section):
    """Metrics and probes over HTTP, on a port of their own."""

    listen: str = Field(default="", pattern=r"^(.+:\d{1,5})?$")  # empty: none
    topics_max: Count = 1_000  # that have figures of their own; those of the others are one topic's
    groups_max: Count = 1_000  # the same of groups
    connections_max: Count = 16  # at once; more are closed
    request_ms: Count = 5_000  # in which a request has to have come, and then its answer to be read

    @field_validator("listen")
    @classmethod
    def _port(cls, listen: str) -> str:
        return _with_port(listen)


class GatewaySettings(_Section):
    """Gateway beside the node, in a process of its own that the node keeps running."""

    rocketmq: str = Field(default="", pattern=r"^(.+:\d{1,5})?$")  # for RocketMQ's clients; empty: none
    rocketmq_file: FilePath | None = None  # its limits, access keys and secrets
    rocketmq_advertise: tuple[str, ...] = ()  # addresses of all gateways, which clients are told
    token: str = Field(default="", repr=False)  # with the right to operate: asks for groups' policies

    @field_validator("rocketmq")
    @classmethod
    def _port(cls, listen: str) -> str:
        return _with_port(listen)

    @field_validator("rocketmq_advertise")
    @classmethod
    def _ports(cls, addresses: tuple[str, ...]) -> tuple[str, ...]:
        if not all(re.fullmatch(r".+:\d{1,5}", address) for address in addresses):
            raise ValueError("each is host:port, as clients reach a gateway")
        return tuple(map(_with_port, addresses))


class Tls(_Section):
    """Certificates; all three make it mutual."""

    certificate: FilePath
    key: FilePath
    authority: FilePath | None = None
    bind_peers: bool = True  # where mutual: a peer's certificate must carry its node's name

    @model_validator(mode="after")
    def _usable(self) -> Tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self.certificate, self.key)
            context.load_verify_locations(self.authority or self.certificate)
        except OSError as error:  # SSLError is one
            raise ValueError(
                f"certificate, key and authority must be PEM that goes together: {error}"
            ) from None
        return self


class Token(_Section):
    """Rights of one bearer token: topic patterns with ``*`` at the end, by right."""

    name: str = Field(default="", max_length=100)  # in the audit log
    produce: tuple[str, ...] = ()
    consume: tuple[str, ...] = ()
    operate: bool = False


class NodeConfig(BaseSettings):
    """A node. ``members`` names every node of the cluster with its address, itself included."""

    model_config = SettingsConfigDict(
        env_prefix=ENVIRONMENT,
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,  # it may be a token
    )

    node: str = Field(pattern=f"^{NODE_NAME.pattern}$")
    data: Path
    listen: str = Field(pattern=r"^.+:\d{1,5}$")
    peer_ticket_ms: Count = 500  # who connects there shows within it that it is a node
    peer_listen: str = Field(default="", pattern=r"^(.+:\d{1,5})?$")  # empty: the port after listen's
    members: dict[str, str]
    dial: dict[str, str] = {}  # a member's address -> where this node reaches it, if not there (NAT, a proxy)
    join: bool = False  # a newcomer: members are those of the cluster, without it, until it is added
    cluster: str = "tarry"  # nodes of another cluster are not listened to
    shard: int = Field(default=0, ge=0, le=4095)
    delay_levels_ms: tuple[Count, ...] = CLASSIC_DELAY_LEVELS_MS
    limits: Limits = Limits()
    delivery: Delivery = Delivery()
    dispatch: Dispatch = Dispatch()
    transactions: TransactionSettings = TransactionSettings()
    consensus: Consensus = Consensus()
    ledger: LedgerSettings = LedgerSettings()
    backup: BackupSettings = BackupSettings()
    connections: Connections = Connections()
    upgrade: Upgrade = Upgrade()
    audit: AuditSettings = AuditSettings()
    metrics: MetricsSettings = MetricsSettings()
    gateway: GatewaySettings = GatewaySettings()
    tls: Tls | None = None
    boot_id_file: Path = (
        BOOT_ID  # another at each start of the machine: tells that what was not flushed may be gone
    )
    damaged_data: Literal["refuse", "rejoin"] = "refuse"  # start not at all, or anew with the others' state
    topics_auto_create: bool = True  # a schedule or a subscribe makes its topic
    groups_auto_create: bool = True  # a consumer makes its group
    tokens: dict[str, Token] = Field(default={}, repr=False)
    tokens_file: Path | None = None  # of tokens and peer_token, apart from the rest
    peer_token: str = Field(default="", repr=False)  # what nodes show each other where tokens are on
    peer_tokens_accepted: tuple[str, ...] = Field(default=(), repr=False)  # others of nodes, at a change
    reload_check_ms: int = Field(default=2_000, ge=0)  # between looks at files of secrets; 0: SIGHUP alone
    lock_code: bool = True  # what is used of the program stays in memory, as far as RLIMIT_MEMLOCK allows
    log_level: str = Field(default="info", pattern=r"^(?i:debug|info|warning|error|critical)$")
    log_json: bool = True

    @field_validator("listen", "peer_listen")
    @classmethod
    def _port(cls, listen: str) -> str:
        return _with_port(listen)

    @field_validator("data")
    @classmethod
    def _absolute(cls, data: Path) -> Path:
        return data.absolute()

    @model_validator(mode="after")
    def _whole(self) -> NodeConfig:
        if not self.members:
            raise ValueError("members is empty: name every node of the cluster")
        if self.node not in self.members and not self.join:
            raise ValueError(
                f'members does not name this node: add {self.node} = "{self.listen}" to it, or join = true'
            )
        if self.tokens and not self.peer_token:
            raise ValueError("tokens are on: set peer_token, the same on every node, or peers are refused")
        if self.audit.file and any(each.operate and not each.name for each in self.tokens.values()):
            raise ValueError('audit.file is set: give every token with operate = true a name, name = "…"')
        self._check_peer_port()
        return self

    @property
    def peer_address(self) -> tuple[str, int]:
        """Host and port to listen at for the nodes' streams; port 0: any that is free."""
        host, _, port = (self.peer_listen or self.listen).rpartition(":")
        follows = not self.peer_listen and int(port) > 0
        return host, int(port) + follows

    def _check_peer_port(self) -> None:
        """Refuse a port that cannot be, or that the other nodes would reach another node at."""
        _, port = self.peer_address
        if port > 65_535:
            raise ValueError(f'no port follows that of listen: set peer_listen = "HOST:PORT", not {port}')
        host = self.members.get(self.node, self.listen).rpartition(":")[0]
        for node, address in self.members.items():
            if port and address == f"{host}:{port}":
                text = "the port after that of listen" if not self.peer_listen else "the port of peer_listen"
                raise ValueError(
                    f'{text}, {address}, is {node}\'s: set peer_listen = "HOST:PORT" on every node of this '
                    "host, each with a port of its own, open to the other nodes"
                )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources in their order of precedence: flags, environment, file, file of tokens."""
        toml = TomlConfigSettingsSource(settings_cls)
        return init_settings, env_settings, toml, _TokensFile(settings_cls)


class _TokensFile(PydanticBaseSettingsSource):
    """The tokens that `tokens_file` has, as the configuration would have them."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Return nothing: the file is read as a whole."""
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        """Return what the file has. Raises OSError, ValueError."""
        path = self.current_state.get("tokens_file")
        if path is None:
            return {}
        try:
            found = tomllib.loads(Path(path).read_text())
        except TOMLDecodeError as error:
            raise ValueError(f"tokens_file: {path}: {unreadable(error)}") from None
        except UnicodeDecodeError:
            raise ValueError(f"tokens_file: {path} is no text") from None
        if not found:  # as a full disk leaves it: without tokens everybody may do everything
            raise ValueError(f"tokens_file: {path} is empty: leave tokens_file out where there are no tokens")
        if not found.keys() <= IN_TOKENS_FILE:
            names = ", ".join(sorted(IN_TOKENS_FILE))
            raise ValueError(f"tokens_file: {path} has another key than {names}")
        return found


def load(path: Path | None, flags: dict[str, Any]) -> NodeConfig:
    """Return the configuration from the file (if any), the environment and the flags.

    Raises:
        ValueError: a key is unknown or a value wrong; the text says which.
        OSError: the file cannot be read.
    """
    if path is not None and not path.is_file():
        raise FileNotFoundError(f"{path}: no such configuration file")

    _check_names(os.environ)

    class FromFile(NodeConfig):
        model_config = SettingsConfigDict(toml_file=path)

    return FromFile(**flags)


def _check_names(variables: Iterable[str]) -> None:
    """Raise ValueError for names that no program of tarry reads, with the one that was perhaps meant."""
    known = {ENVIRONMENT + field.upper() for field in NodeConfig.model_fields}
    wrong = []
    for name in sorted({name.upper() for name in variables if name.upper().startswith(ENVIRONMENT)}):
        key = ENVIRONMENT + name.removeprefix(ENVIRONMENT).partition("__")[0]
        if key in known or name in OTHERS or KUBERNETES.search(name):
            continue
        near = get_close_matches(key, known, n=1)
        shown = f"{SECRET}…" if key.startswith(SECRET) else name
        wrong.append(f"{shown}: no such setting" + (f"; {near[0]} is one" if near else ""))
    if wrong:
        raise ValueError("environment: " + "\nenvironment: ".join(wrong))


def faults(error: Exception, path: Path | None) -> list[str]:
    """Say what is wrong with the configuration that `load` could not read, a line each, without tokens."""
    if isinstance(error, ValidationError):
        return problems(error)
    if isinstance(error, TOMLDecodeError):
        return [f"{path}: {unreadable(error)}"]
    return [f"{path}: {error}" if isinstance(error, UnicodeDecodeError) else str(error)]


def problems(error: ValidationError) -> list[str]:
    """Say what is wrong where, a line each, without tokens: they are the names below ``tokens``."""
    return [f"{_where(each)}: {each['msg']}" for each in error.errors()]


def _where(problem: ErrorDetails) -> str:
    where, given = problem["loc"], problem["input"]
    known = Token.model_fields.keys()
    if where[:1] == ("tokens",):
        shown = [part if isinstance(part, int) or part in known else HIDDEN for part in where[1:]]
        where = ("tokens", *shown)
    elif len(where) == 1 and isinstance(given, Mapping) and known & given.keys():
        where = (HIDDEN, "of a token, outside of tokens")
    return ".".join(map(str, where)) or "configuration"


def unreadable(error: TOMLDecodeError) -> str:
    """Say what is wrong with a file that is no TOML, without the names in it: one may be a token."""
    text = str(error)
    return text if text.startswith("Expected") else re.sub(r"""(['"]).*\1""", HIDDEN, text, flags=re.DOTALL)
