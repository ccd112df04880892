"""kohort's codec against kio's and kafka-python's, byte for byte, on every message and version."""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.examples import seeds
from tests.wire.oracles import ORACLES, KafkaPython, Oracle, declared, messages
from tests.wire.samples import samplers

from kohort.schema import VersionRange, decode, encode
from kohort.schema.declare import layout_of
from kohort.wire.apis import APIS, Api
from kohort.wire.codec import decode_request, decode_response, encode_request, encode_response

# kafka-python reads its message definitions with a deprecated call of importlib.resources.
pytestmark = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")

SEED = 848_000
SAMPLES = max(4, len(seeds(12)))
"""At least the four samplers that use nulls and tags everywhere or nowhere."""

GAPS = tomllib.loads(Path(__file__).with_name("oracle_gaps.toml").read_text())["gap"]


def listed(oracle: Oracle, cls: type, version: int, step: str) -> bool:
    return any(
        gap["oracle"] == oracle.name
        and gap["message"] == cls.__name__
        and gap["step"] == step
        and version in VersionRange.parse(gap["versions"])
        for gap in GAPS
    )


def encodes(oracle: Oracle, message: Any, version: int) -> str:
    """The reason why ``oracle`` writes other bytes than kohort; empty if the bytes are equal."""
    ours = encode(message, version)
    try:
        theirs = oracle.encode(message, version)
    except Exception as error:
        return f"raised {error!r}"
    return "" if theirs == ours else f"wrote {theirs.hex()[:400]} for {ours.hex()[:400]}"


def decodes(oracle: Oracle, message: Any, version: int) -> str:
    """The reason why ``oracle`` reads another message from kohort's bytes; empty if it is equal."""
    try:
        theirs = oracle.decode(type(message), version, encode(message, version))
    except Exception as error:
        return f"raised {error!r}"
    return "" if theirs == message else f"read {theirs!r:.400} for {message!r:.400}"


STEPS = {"encode": encodes, "decode": decodes}


def seed_of(api: Api, version: int) -> int:
    return SEED + 1_000 * api.key + 20 * version


@functools.cache
def samples(cls: type, version: int, seed: int, *, narrow: bool) -> list[tuple[int, Any]]:
    """Messages with their seeds; made once, since no test changes one."""
    made = samplers(seed, SAMPLES, narrow=narrow)
    return [(sampler.seed, sampler.message(cls, version)) for sampler in made]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("oracle", ORACLES, ids=lambda o: o.name)
@pytest.mark.parametrize("api", APIS, ids=lambda a: a.name)
def test_oracle_and_kohort_agree_except_for_the_listed_gaps(
    api: Api, oracle: Oracle, step: str
) -> None:
    wrong = []
    for _, cls, version in [m for m in messages() if m[0] is api]:
        seed = seed_of(api, version)
        complaints = [
            f"{cls.__name__} v{version} seed {each}: {complaint}"
            for each, message in samples(cls, version, seed, narrow=oracle.narrow)
            if (complaint := STEPS[step](oracle, message, version))
        ]
        expected = listed(oracle, cls, version, step)
        if complaints and not expected:
            wrong += complaints[:1]
        if expected and not complaints:
            wrong.append(
                f"{cls.__name__} v{version}: listed as a gap, but {oracle.name} manages it"
            )
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("api", APIS, ids=lambda a: a.name)
def test_kohort_reads_back_what_it_wrote(api: Api) -> None:
    for _, cls, version in [m for m in messages() if m[0] is api]:
        for seed, message in samples(cls, version, seed_of(api, version), narrow=False):
            data = encode(message, version)
            again: object
            again, end = decode(cls, version, b"\x55\x55" + data + b"\x55", 2)
            assert again == message, f"{cls.__name__} v{version} seed {seed}"
            assert end == 2 + len(data)


@pytest.mark.parametrize("api", APIS, ids=lambda a: a.name)
def test_frames_are_those_of_kafka_python(api: Api) -> None:
    oracle = KafkaPython()
    for _, cls, version in [m for m in messages() if m[0] is api]:
        if listed(oracle, cls, version, "encode"):
            continue
        for sampler in samplers(seed_of(api, version), 3, narrow=False):
            message = sampler.message(cls, version)
            where = f"{cls.__name__} v{version} seed {sampler.seed}"
            correlation_id = sampler.random.randrange(1 << 31)
            theirs = oracle.encode_frame(message, version, correlation_id, "wire-1 é")
            if layout_of(cls).is_request:
                assert encode_request(message, version, correlation_id, "wire-1 é") == theirs, where
                header, again = decode_request(theirs[4:])
                assert (header.api_key, header.api_version) == (api.key, version)
                assert (header.correlation_id, header.client_id) == (correlation_id, "wire-1 é")
            else:
                assert encode_response(message, version, correlation_id) == theirs, where
                told, again = decode_response(cls, version, theirs[4:])
                assert told == correlation_id
            assert again == message, where


def test_every_gap_names_a_message_and_versions_that_exist() -> None:
    known = {(cls.__name__, version) for _, cls, version in messages()}
    for gap in GAPS:
        span = VersionRange.parse(gap["versions"])
        assert gap["oracle"] in {oracle.name for oracle in ORACLES}
        assert gap["step"] in STEPS
        assert gap["reason"]
        assert all((gap["message"], v) in known for v in range(span.low, span.high + 1)), gap


def test_every_declared_message_is_compared() -> None:
    assert len(messages()) == 2 * sum(high - low + 1 for low, high in map(declared, APIS))
