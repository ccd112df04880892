"""Settings of other Kafka clients: the name of each in kohort, or advice in its place.

In: nothing. Out: two tables by dotted name, and the advice for a name. Must not know: values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

OTHER_NAMES: Final[Mapping[str, str]] = {
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "group.remote.assignor": "partition.assignment.strategy",
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
    "sasl.plain.password": "sasl.password",
    "sasl.plain.username": "sasl.username",
    "socket.timeout.ms": "request.timeout.ms",
    "ssl.cafile": "ssl.ca.location",
    "ssl.certfile": "ssl.certificate.location",
    "ssl.ciphers": "ssl.cipher.suites",
    "ssl.keyfile": "ssl.key.location",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.password": "ssl.key.password",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
}
"""The name in librdkafka, the Java client, kafka-python or aiokafka -> kohort's name."""

_ERRORS: Final = "leave it out: calls raise exceptions, and the rest goes to the module logging"
_SOCKETS: Final = "leave it out: connections are not tuned one by one here"
_VERSIONS: Final = "leave it out: versions are agreed with each broker"
_METRICS: Final = "call metrics() or status()"
_CALLBACK: Final = "give commit(asynchronous=True, callback=...) a function"
_PEM_FILES: Final = "give PEM files: ssl.ca.location, ssl.certificate.location, ssl.key.location"

_INSTEAD: Final[Mapping[str, str]] = {
    "api.version": _VERSIONS,
    "api.version.request": _VERSIONS,
    "bootstrap.timeout.ms": "leave it out: poll tries on, and raises BrokerUnreachable meanwhile",
    "connections.max.idle.ms": _SOCKETS,
    "consumer.timeout.ms": "call poll(seconds) in a loop: None says that no record came",
    "default.offset.commit.callback": _CALLBACK,
    "default.topic.config": "give the settings in it directly",
    "enable.auto.offset.store": "leave it out: no commit covers a record before the next poll",
    "enable.partition.eof": "leave it out: lag() tells whether everything was read",
    "error.cb": _ERRORS,
    "exclude.internal.topics": "leave it out: a pattern never matches internal topics",
    "logger": _ERRORS,
    "loop": "leave it out: the event loop of the first call is used",
    "metric.reporters": _METRICS,
    "on.commit": _CALLBACK,
    "rebalance.timeout.ms": "give max.poll.interval.ms, which also bounds rebalances",
    "receive.buffer.bytes": _SOCKETS,
    "receive.message.max.bytes": "leave it out: it follows from fetch.max.bytes",
    "sasl.client.callback.handler.class": "give a function: oauth_cb",
    "sasl.jaas.config": "give sasl.username and sasl.password",
    "sasl.login.callback.handler.class": "give a function: oauth_cb",
    "sasl.oauth.token.provider": "give a function: oauth_cb",
    "send.buffer.bytes": _SOCKETS,
    "socket.keepalive.enable": _SOCKETS,
    "socket.options": _SOCKETS,
    "ssl.check.hostname": "give ssl.endpoint.identification.algorithm=none to leave the check out",
    "ssl.context": _PEM_FILES,
    "ssl.keystore.location": "give PEM files: ssl.certificate.location and ssl.key.location",
    "ssl.keystore.password": "give PEM files: ssl.key.location and ssl.key.password",
    "ssl.keystore.type": "certificates are always PEM: ssl.certificate.location",
    "ssl.truststore.location": "give the certificates as PEM: ssl.ca.location",
    "ssl.truststore.password": "give the certificates as PEM: ssl.ca.location",
    "ssl.truststore.type": "certificates are always PEM: ssl.ca.location",
    "statistics.interval.ms": _METRICS,
    "stats.cb": _METRICS,
    "throttle.cb": "leave it out: the throttle times of brokers are obeyed",
}


def advice(name: str) -> str | None:
    """The advice for a setting of another client; None if there is none."""
    if name.startswith("sasl.kerberos."):
        return "GSSAPI (Kerberos) is not supported"
    return _INSTEAD.get(name)
