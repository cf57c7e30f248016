from tarry.proto import tarry_message_pb2 as _tarry_message_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TransactionEnd(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TRANSACTION_END_UNSPECIFIED: _ClassVar[TransactionEnd]
    TRANSACTION_END_COMMIT: _ClassVar[TransactionEnd]
    TRANSACTION_END_ROLLBACK: _ClassVar[TransactionEnd]

class TransactionState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TRANSACTION_STATE_UNSPECIFIED: _ClassVar[TransactionState]
    TRANSACTION_STATE_OPEN: _ClassVar[TransactionState]
    TRANSACTION_STATE_COMMITTED: _ClassVar[TransactionState]
    TRANSACTION_STATE_ROLLED_BACK: _ClassVar[TransactionState]
    TRANSACTION_STATE_UNRESOLVED: _ClassVar[TransactionState]
TRANSACTION_END_UNSPECIFIED: TransactionEnd
TRANSACTION_END_COMMIT: TransactionEnd
TRANSACTION_END_ROLLBACK: TransactionEnd
TRANSACTION_STATE_UNSPECIFIED: TransactionState
TRANSACTION_STATE_OPEN: TransactionState
TRANSACTION_STATE_COMMITTED: TransactionState
TRANSACTION_STATE_ROLLED_BACK: TransactionState
TRANSACTION_STATE_UNRESOLVED: TransactionState

class PrepareRequest(_message.Message):
    __slots__ = ("producer_group", "transaction", "topic", "record", "due_ms", "delay_ms", "check_after_ms", "born_ms")
    PRODUCER_GROUP_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    CHECK_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    BORN_MS_FIELD_NUMBER: _ClassVar[int]
    producer_group: str
    transaction: str
    topic: str
    record: _tarry_message_pb2.Record
    due_ms: int
    delay_ms: int
    check_after_ms: int
    born_ms: int
    def __init__(self, producer_group: _Optional[str] = ..., transaction: _Optional[str] = ..., topic: _Optional[str] = ..., record: _Optional[_Union[_tarry_message_pb2.Record, _Mapping]] = ..., due_ms: _Optional[int] = ..., delay_ms: _Optional[int] = ..., check_after_ms: _Optional[int] = ..., born_ms: _Optional[int] = ...) -> None: ...

class PrepareResponse(_message.Message):
    __slots__ = ("transaction", "repeated")
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    REPEATED_FIELD_NUMBER: _ClassVar[int]
    transaction: Transaction
    repeated: bool
    def __init__(self, transaction: _Optional[_Union[Transaction, _Mapping]] = ..., repeated: _Optional[bool] = ...) -> None: ...

class EndTransactionRequest(_message.Message):
    __slots__ = ("producer_group", "transaction", "end")
    PRODUCER_GROUP_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    producer_group: str
    transaction: str
    end: TransactionEnd
    def __init__(self, producer_group: _Optional[str] = ..., transaction: _Optional[str] = ..., end: _Optional[_Union[TransactionEnd, str]] = ...) -> None: ...

class EndTransactionResponse(_message.Message):
    __slots__ = ("transaction", "repeated")
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    REPEATED_FIELD_NUMBER: _ClassVar[int]
    transaction: Transaction
    repeated: bool
    def __init__(self, transaction: _Optional[_Union[Transaction, _Mapping]] = ..., repeated: _Optional[bool] = ...) -> None: ...

class Transaction(_message.Message):
    __slots__ = ("number", "producer_group", "transaction", "topic", "state", "prepared_ms", "due_ms", "delay_ms", "checks", "next_check_ms", "ended_ms", "id", "message_due_ms")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_GROUP_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PREPARED_MS_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    CHECKS_FIELD_NUMBER: _ClassVar[int]
    NEXT_CHECK_MS_FIELD_NUMBER: _ClassVar[int]
    ENDED_MS_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_DUE_MS_FIELD_NUMBER: _ClassVar[int]
    number: int
    producer_group: str
    transaction: str
    topic: str
    state: TransactionState
    prepared_ms: int
    due_ms: int
    delay_ms: int
    checks: int
    next_check_ms: int
    ended_ms: int
    id: str
    message_due_ms: int
    def __init__(self, number: _Optional[int] = ..., producer_group: _Optional[str] = ..., transaction: _Optional[str] = ..., topic: _Optional[str] = ..., state: _Optional[_Union[TransactionState, str]] = ..., prepared_ms: _Optional[int] = ..., due_ms: _Optional[int] = ..., delay_ms: _Optional[int] = ..., checks: _Optional[int] = ..., next_check_ms: _Optional[int] = ..., ended_ms: _Optional[int] = ..., id: _Optional[str] = ..., message_due_ms: _Optional[int] = ...) -> None: ...

class ListTransactionsRequest(_message.Message):
    __slots__ = ("producer_group", "topic", "ended", "after", "page_size")
    PRODUCER_GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    producer_group: str
    topic: str
    ended: bool
    after: int
    page_size: int
    def __init__(self, producer_group: _Optional[str] = ..., topic: _Optional[str] = ..., ended: _Optional[bool] = ..., after: _Optional[int] = ..., page_size: _Optional[int] = ...) -> None: ...

class ListTransactionsResponse(_message.Message):
    __slots__ = ("transactions", "next_after", "open")
    TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_AFTER_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    transactions: _containers.RepeatedCompositeFieldContainer[Transaction]
    next_after: int
    open: int
    def __init__(self, transactions: _Optional[_Iterable[_Union[Transaction, _Mapping]]] = ..., next_after: _Optional[int] = ..., open: _Optional[int] = ...) -> None: ...

class ChecksRequest(_message.Message):
    __slots__ = ("subscribe", "answer")
    SUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    subscribe: ChecksSubscribe
    answer: CheckAnswer
    def __init__(self, subscribe: _Optional[_Union[ChecksSubscribe, _Mapping]] = ..., answer: _Optional[_Union[CheckAnswer, _Mapping]] = ...) -> None: ...

class ChecksSubscribe(_message.Message):
    __slots__ = ("producer_group", "producer")
    PRODUCER_GROUP_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    producer_group: str
    producer: str
    def __init__(self, producer_group: _Optional[str] = ..., producer: _Optional[str] = ...) -> None: ...

class CheckAnswer(_message.Message):
    __slots__ = ("transaction", "end")
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    transaction: str
    end: TransactionEnd
    def __init__(self, transaction: _Optional[str] = ..., end: _Optional[_Union[TransactionEnd, str]] = ...) -> None: ...

class ChecksResponse(_message.Message):
    __slots__ = ("subscribed", "check", "refused")
    SUBSCRIBED_FIELD_NUMBER: _ClassVar[int]
    CHECK_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    subscribed: ChecksSubscribed
    check: Check
    refused: CheckRefused
    def __init__(self, subscribed: _Optional[_Union[ChecksSubscribed, _Mapping]] = ..., check: _Optional[_Union[Check, _Mapping]] = ..., refused: _Optional[_Union[CheckRefused, _Mapping]] = ...) -> None: ...

class ChecksSubscribed(_message.Message):
    __slots__ = ("node", "term")
    NODE_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    node: str
    term: int
    def __init__(self, node: _Optional[str] = ..., term: _Optional[int] = ...) -> None: ...

class Check(_message.Message):
    __slots__ = ("transaction", "record")
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    transaction: Transaction
    record: _tarry_message_pb2.Record
    def __init__(self, transaction: _Optional[_Union[Transaction, _Mapping]] = ..., record: _Optional[_Union[_tarry_message_pb2.Record, _Mapping]] = ...) -> None: ...

class CheckRefused(_message.Message):
    __slots__ = ("transaction", "reason", "text")
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    transaction: str
    reason: str
    text: str
    def __init__(self, transaction: _Optional[str] = ..., reason: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...
