"""The cache stays within its bytes and drops what was used least recently."""

from deployments.cache import ENTRY_OVERHEAD_BYTES, ByteCache


def test_least_recently_used_goes_first() -> None:
    cache = ByteCache(3 * (101 + ENTRY_OVERHEAD_BYTES))
    for key in (b"a", b"b", b"c"):
        cache.put(key, bytes(100))
    assert cache.get(b"a") is not None
    cache.put(b"d", bytes(100))
    assert cache.get(b"b") is None
    assert all(cache.get(key) is not None for key in (b"a", b"c", b"d"))


def test_bytes_are_counted_also_when_a_key_is_replaced() -> None:
    cache = ByteCache(10_000)
    for size in (5_000, 100, 3_000):
        cache.put(b"k", bytes(size))
    assert cache.bytes_held == 3_001 + ENTRY_OVERHEAD_BYTES
    for number in range(1_000):
        cache.put(b"%d" % number, bytes(90))
        assert cache.bytes_held <= 10_000


def test_value_above_the_limit_is_not_kept_and_drops_nothing() -> None:
    cache = ByteCache(1_000)
    cache.put(b"small", bytes(10))
    cache.put(b"large", bytes(5_000))
    assert cache.get(b"large") is None
    assert cache.get(b"small") is not None
