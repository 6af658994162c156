"""Every kind of file gets its right answer, whatever it claims to be."""

import io
import re
import struct

import av
import numpy as np
import pytest
from sound_files import RATE, cosine, encode, voice, wav

from engine.audio import DecodeLimits, DecodeRequest, PcmFormat, load, read_passes
from engine.audio.decode import OPTIONS
from engine.errors import EmotionError

VOICE = voice()


def decoded(body: bytes, **request: object) -> tuple[np.ndarray, object]:
    """The samples of a short file, and its report."""
    (excerpt,), (report,) = load(io.BytesIO(body), DecodeRequest(**request))
    return excerpt.samples, report


def refused(body: bytes, limits: DecodeLimits | None = None, **request: object) -> EmotionError:
    with pytest.raises(EmotionError) as caught:
        list(read_passes(io.BytesIO(body), DecodeRequest(**request), limits))
    assert 400 <= caught.value.status < 500
    return caught.value


def codes(report: object) -> list[str]:
    return [code for code, _ in report.warnings]


def index_in_front(body: bytes) -> bytes:
    """An MP4 of `ftyp`, `free`, `mdat`, `moov` with the index moved before the samples."""
    moov = body.find(b"moov") - 4
    mdat = body.find(b"mdat") - 4
    index = bytearray(body[moov:])
    for table in re.finditer(b"stco", bytes(index)):
        at = table.end() + 8
        for entry in range(at, at + 4 * struct.unpack_from(">I", index, at - 4)[0], 4):
            struct.pack_into(
                ">I", index, entry, struct.unpack_from(">I", index, entry)[0] + len(index)
            )
    return body[:mdat] + bytes(index) + body[mdat:moov]


CODED = [
    ("mp3", "libmp3lame", "mp3"),
    ("mp2", "mp2", "mp2"),
    ("flac", "flac", "flac"),
    ("ogg", "libopus", "ogg"),
    ("webm", "libopus", "webm"),
    ("matroska", "aac", "matroska"),
    ("ipod", "aac", "m4a"),
    ("mp4", "aac", "mp4"),
    ("mov", "alac", "mov"),
    ("3gp", "aac", "3gp"),
    ("adts", "aac", "aac"),
    ("latm", "aac", "aac"),
    ("aiff", "pcm_s16be", "aiff"),
    ("au", "pcm_s16be", "au"),
    ("caf", "pcm_s16be", "caf"),
    ("w64", "pcm_s16le", "w64"),
    ("wv", "wavpack", "wavpack"),
    ("tta", "tta", "tta"),
    ("asf", "wmav2", "asf"),
    ("avi", "mp3", "avi"),
    ("flv", "aac", "flv"),
    ("mpegts", "aac", "mpegts"),
    ("vob", "mp2", "mpeg"),
    ("wav", "adpcm_ms", "wav"),
    ("wav", "pcm_s24le", "wav"),
]


@pytest.mark.parametrize(("container", "codec", "name"), CODED)
def test_coded_files_sound_like_the_original(container: str, codec: str, name: str) -> None:
    rate = 48_000 if codec in ("libopus", "wmav2") else RATE
    bit_rate = 96_000 if codec in ("wmav2", "mp2") else None
    sound = voice(3.0, rate)
    samples, report = decoded(encode(sound, container, codec, rate, bit_rate=bit_rate))
    assert (report.format, report.sample_rate, report.channels) == (name, rate, 1)
    assert report.duration == pytest.approx(3.0, abs=0.1)
    assert codes(report) == []
    assert cosine(sound, samples) > 0.93


def test_amr_is_narrowband() -> None:
    samples, report = decoded(encode(voice(3.0, 8000), "amr", "libopencore_amrnb", 8000))
    assert (report.format, report.sample_rate) == ("amr", 8000)
    assert len(samples) == pytest.approx(24_000, abs=400)
    assert codes(report) == ["narrowband"]


def test_pcm_widths_give_the_same_samples() -> None:
    exact = VOICE.astype(np.float32) / 32768
    for kind in (np.float32, np.float64):
        samples, _ = decoded(wav((VOICE / 32768).astype(kind)))
        assert samples.dtype == np.float32
        np.testing.assert_array_equal(samples, exact)
    for codec in ("pcm_s24le", "pcm_s32le", "pcm_s64le"):
        samples, _ = decoded(encode(VOICE, "wav", codec))
        np.testing.assert_array_equal(samples, exact)
    samples, _ = decoded(wav(VOICE))
    assert samples.dtype == np.int16
    np.testing.assert_array_equal(samples, VOICE)


def test_eight_bit_is_kept_as_integers() -> None:
    samples, _ = decoded(wav((VOICE // 256 + 128).astype(np.uint8)))
    np.testing.assert_array_equal(samples, VOICE // 256 * 256)


def test_extensible_24_bit_96_khz_stereo() -> None:
    sound = voice(1.0, 96_000)
    body = encode(np.stack([sound, sound], 1), "wav", "pcm_s24le", 96_000)
    samples, report = decoded(body)
    assert (report.sample_rate, report.channels) == (96_000, 2)
    np.testing.assert_array_equal(samples, sound.astype(np.float32) / 32768)


@pytest.mark.parametrize("size", [0, 0xFFFFFFFF])
def test_streamed_wav_is_whole(size: int) -> None:
    samples, report = decoded(wav(VOICE, data_size=size), strict=True)
    np.testing.assert_array_equal(samples, VOICE)
    assert report.duration == 3.0
    assert report.warnings == ()


def test_rf64_and_big_endian_wav() -> None:
    body = encode(VOICE, "wav", "pcm_s16le", options={"rf64": "always"})
    assert body[:4] == b"RF64"
    samples, report = decoded(body)
    np.testing.assert_array_equal(samples, VOICE)
    assert report.warnings == ()
    assert codes(decoded(body[:-20_000])[1]) == ["truncated"]


@pytest.mark.parametrize(
    ("container", "codec"),
    [
        *[("mp3", "libmp3lame"), ("flac", "flac"), ("ogg", "libopus"), ("webm", "libopus")],
        *[("matroska", "aac"), ("adts", "aac"), ("latm", "aac"), ("aiff", "pcm_s16be")],
        *[("au", "pcm_s16be"), ("caf", "pcm_s16be"), ("w64", "pcm_s16le"), ("avi", "mp3")],
        *[("flv", "aac"), ("wav", "pcm_s16le"), ("wav", "adpcm_ms"), ("mpegts", "aac")],
        ("amr", "libopencore_amrnb"),
    ],
)
def test_a_cut_file_says_so(container: str, codec: str) -> None:
    rate = {"libopus": 48_000, "libopencore_amrnb": 8_000}.get(codec, RATE)
    whole = encode(voice(4.0, rate), container, codec, rate)
    for share in (0.5, 0.61, 0.73):
        cut = whole[: int(share * len(whole)) // 188 * 188 + 1]
        _, report = decoded(cut)
        assert "truncated" in codes(report)
        assert report.duration < 4.0
        assert refused(cut, strict=True).error_type == "audio_decode_failed"


def test_a_cut_mp4_with_its_index_in_front_says_so() -> None:
    body = index_in_front(encode(VOICE, "mp4", "aac"))
    assert body.find(b"moov") < body.find(b"mdat")
    _, report = decoded(body[: len(body) * 2 // 3])
    assert "truncated" in codes(report)
    assert 0.5 < report.duration < 3.0


def test_an_mp4_cut_before_its_index_is_refused() -> None:
    body = encode(VOICE, "mp4", "aac")
    assert refused(body[: len(body) // 2]).error_type == "audio_decode_failed"


@pytest.mark.parametrize("form", ["fragmented", "index in front", "index behind"])
def test_the_mp4_family_agrees(form: str) -> None:
    flags = {"movflags": "frag_keyframe+empty_moov"} if form == "fragmented" else None
    body = encode(VOICE, "mp4", "aac", options=flags)
    samples, report = decoded(
        index_in_front(body) if form == "index in front" else body, strict=True
    )
    assert report.warnings == ()
    assert cosine(VOICE, samples) > 0.97


def test_live_webm_equals_ogg() -> None:
    sound = voice(3.0, 48_000)
    live = encode(sound, "webm", "libopus", 48_000, options={"live": "1"})
    left, report = decoded(live, strict=True)
    right, _ = decoded(encode(sound, "ogg", "libopus", 48_000), strict=True)
    assert report.warnings == ()
    assert report.duration == pytest.approx(3.0, abs=0.05)
    length = min(len(left), len(right))
    np.testing.assert_allclose(left[:length], right[:length], atol=1e-6)


def test_a_hole_in_an_mp3_is_said() -> None:
    body = bytearray(encode(VOICE, "mp3", "libmp3lame"))
    body[4000:5000] = bytes(1000)
    _, report = decoded(bytes(body))
    assert {"truncated", "corrupt_frames"} & set(codes(report))
    assert report.duration < 3.0
    assert refused(bytes(body), strict=True).error_type == "audio_decode_failed"


@pytest.mark.parametrize(
    ("container", "codec"),
    [
        ("mp3", "libmp3lame"),
        ("flac", "flac"),
        ("ogg", "libopus"),
        ("adts", "aac"),
        ("wav", "pcm_s24le"),
    ],
)
def test_joined_files_are_heard_to_the_end(container: str, codec: str) -> None:
    rate = 48_000 if codec == "libopus" else RATE
    parts = [encode(voice(3.0, rate, pitch), container, codec, rate) for pitch in (120, 200)]
    samples, report = decoded(b"".join(parts), strict=True)
    assert report.duration == pytest.approx(6.0, abs=0.2)
    assert report.warnings == ()
    assert cosine(voice(3.0, rate, 200), samples[-3 * rate - 2_000 :]) > 0.9


def test_joined_wavs_may_differ_in_rate_and_channels() -> None:
    other = voice(2.0, 44_100)
    body = wav(VOICE) + wav(np.stack([other, other], 1), 44_100)
    samples, report = decoded(body)
    assert (report.sample_rate, report.channels) == (RATE, 1)
    assert len(samples) == pytest.approx(5 * RATE, abs=10)


def test_a_broken_second_file_is_damage_of_the_first() -> None:
    samples, report = decoded(wav(VOICE) + wav(VOICE, 0))
    np.testing.assert_array_equal(samples, VOICE)
    assert codes(report) == ["corrupt_frames"]


def test_a_video_is_heard_and_a_silent_one_refused() -> None:
    def video(with_sound: bool) -> bytes:
        file = io.BytesIO()
        with av.open(file, "w", format="mp4") as output:
            picture = output.add_stream("mpeg4", rate=5, width=64, height=64, pix_fmt="yuv420p")
            sound = output.add_stream("aac", rate=RATE, layout="mono") if with_sound else None
            for number in range(15):
                frame = av.VideoFrame(64, 64, "yuv420p")
                frame.pts = number
                output.mux(picture.encode(frame))
            output.mux(picture.encode(None))
            if sound is not None:
                frame = av.AudioFrame.from_ndarray(VOICE[None], "s16p", "mono")
                frame.sample_rate = RATE
                output.mux(sound.encode(frame))
                output.mux(sound.encode(None))
        return file.getvalue()

    samples, _ = decoded(video(True))
    assert cosine(VOICE, samples) > 0.97
    assert refused(video(False)).error_type == "no_audio_stream"


def test_empty_bodies_and_headers() -> None:
    assert refused(b"").error_type == "empty_body"
    assert refused(wav(VOICE[:0])).error_type == "audio_empty"
    assert refused(b"", pcm=PcmFormat("pcm_s16le", RATE, 1)).error_type == "empty_body"


def png() -> bytes:
    return b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4


NOT_AUDIO = {
    "ffconcat": b"ffconcat version 1.0\nfile ref.wav\n",
    "sdp": b"v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nm=audio 5004 RTP/AVP 0\n",
    "hls": b"#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n",
    "dash": b'<?xml version="1.0"?><MPD><Period><BaseURL>file:///etc/passwd</BaseURL></Period></MPD>',
    "srt": b"1\n00:00:00,000 --> 00:00:02,000\nhello\n",
    "vtt": b"WEBVTT\n\n00:00.000 --> 00:02.000\nhello\n",
    "ass": b"[Script Info]\nScriptType: v4.00+\n",
    "ffmetadata": b";FFMETADATA1\ntitle=x\n",
    "html": b"<!DOCTYPE html><html><body>hello</body></html>",
    "json": b'{"inputs": "UklGRg=="}',
    "png": png(),
    "gif": b"GIF89a" + bytes(100),
    "jpeg": b"\xff\xd8\xff\xe0\x00\x10JFIF" + bytes(100),
    "bmp": b"BM" + bytes(100),
    "pdf": b"%PDF-1.7\n" + bytes(100),
    "zip": b"PK\x03\x04" + bytes(100),
    "elf": b"\x7fELF" + bytes(100),
    "zeros": bytes(10_000),
    "ones": b"\xff" * 100_000,
    "riff of something else": b"RIFF\x10\x00\x00\x00WEBPVP8 " + bytes(100),
    "midi": b"MThd\x00\x00\x00\x06" + bytes(100),
}


@pytest.mark.parametrize("name", NOT_AUDIO)
def test_what_is_no_audio_container_is_not_supported(name: str) -> None:
    assert refused(NOT_AUDIO[name]).error_type == "unsupported_media_type"


@pytest.mark.parametrize(
    "name", ["ffconcat", "sdp", "hls", "dash", "srt", "vtt", "ffmetadata", "png"]
)
def test_ffmpeg_itself_would_not_open_it_either(name: str) -> None:
    with pytest.raises(ValueError, match="."):
        av.open(io.BytesIO(NOT_AUDIO[name]), options=OPTIONS)


@pytest.mark.parametrize("seed", range(30))
def test_random_bytes_are_not_supported(seed: int) -> None:
    random = np.random.default_rng(seed)
    size = int(random.choice([100, 5_000, 9_000, 50_000, 300_000]))
    assert refused(random.bytes(size)).error_type == "unsupported_media_type"


def test_an_mp3_may_begin_in_the_middle_of_a_frame_or_behind_a_tag() -> None:
    body = encode(VOICE, "mp3", "libmp3lame", options={"write_xing": "0", "id3v2_version": "0"})
    assert body[:1] == b"\xff"
    assert decoded(body[37:])[1].format == "mp3"
    assert decoded(bytes(500) + body)[1].format == "mp3"
    tag = b"ID3\x04\x00\x00" + bytes([0, 0, 7, 104]) + bytes(1000)
    assert decoded(tag + body)[1].format == "mp3"
    assert decoded(tag + encode(VOICE, "flac", "flac"))[1].format == "flac"


def test_a_tag_that_is_no_utf8_does_no_harm() -> None:
    info = (
        b"LIST" + struct.pack("<I", 16) + b"INFOINAM" + struct.pack("<I", 4) + b"\xc9\xfa\xb0\xa1"
    )
    body = wav(VOICE)
    assert len(decoded(body[:36] + info + body[36:])[0]) == len(VOICE)


@pytest.mark.parametrize(("rate", "answer"), [(0, 422), (1, 422), (3_999, 422), (400_000, 422)])
def test_impossible_rates_are_refused(rate: int, answer: int) -> None:
    error = refused(wav(VOICE, rate))
    assert error.status == answer
    if rate:
        assert error.error_type == "sample_rate_out_of_range"
        assert f"{rate} Hz" in error.message


def test_no_channels_and_too_many_channels_are_refused() -> None:
    none = bytearray(wav(VOICE))
    none[22:24] = bytes(2)
    assert refused(bytes(none)).status == 422
    many = refused(wav(np.zeros((4000, 33), np.int16)))
    assert many.error_type == "audio_decode_failed"
    assert "33" in many.message
    assert decoded(wav(np.tile(VOICE[:, None], (1, 32))))[1].channels == 32


def test_planar_codecs_with_eight_channels() -> None:
    channels = np.stack([voice(1.0, RATE, 100 + 20 * n) for n in range(8)], 1)
    body = wav(channels)
    flac = io.BytesIO()
    with av.open(flac, "w", format="flac") as output:
        stream = output.add_stream("flac", rate=RATE, layout="7.1")
        frame = av.AudioFrame.from_ndarray(channels.reshape(1, -1), "s16", "7.1")
        frame.sample_rate = RATE
        for packet in [*stream.encode(frame), *stream.encode(None)]:
            output.mux(packet)
    for form in (body, flac.getvalue()):
        passes, _ = load(io.BytesIO(form), DecodeRequest(channels="split"))
        for channel, excerpt in enumerate(passes):
            np.testing.assert_array_equal(excerpt.samples, channels[:, channel])


def test_a_bomb_is_counted_while_it_decodes() -> None:
    body = encode(np.zeros(RATE * 120, np.int16), "flac", "flac")
    assert len(body) < RATE * 120 * 2 / 100
    error = refused(body, DecodeLimits(max_audio_seconds=60))
    assert error.error_type == "audio_too_long"
    assert "60 s" in error.message
    lying = body[:21] + bytes([body[21] & 0xF0, 0, 0, 0, 1]) + body[26:]
    assert refused(lying, DecodeLimits(max_audio_seconds=60)).error_type == "audio_too_long"


def test_headerless_pcm() -> None:
    stereo = np.stack([VOICE, VOICE // 2], 1)
    samples, report = decoded(VOICE.tobytes(), pcm=PcmFormat("pcm_s16le", RATE, 1))
    np.testing.assert_array_equal(samples, VOICE)
    assert (report.format, report.warnings) == ("pcm", ())
    halves, _ = decoded(stereo.tobytes(), pcm=PcmFormat("pcm_s16le", RATE, 2), channels=1)
    np.testing.assert_array_equal(halves, VOICE // 2)
    floats = (VOICE / 32768).astype("<f4")
    samples, _ = decoded(floats.tobytes(), pcm=PcmFormat("pcm_f32le", RATE, 1))
    np.testing.assert_array_equal(samples, floats)


def test_headerless_pcm_is_checked() -> None:
    odd = VOICE.tobytes() + b"x"
    assert codes(decoded(odd, pcm=PcmFormat("pcm_s16le", RATE, 1))[1]) == ["truncated"]
    for pcm, error_type in (
        (PcmFormat("pcm_u8", RATE, 1), "invalid_request"),
        (PcmFormat("pcm_s16le", 1, 1), "sample_rate_out_of_range"),
        (PcmFormat("pcm_s16le", RATE, 0), "audio_decode_failed"),
        (PcmFormat("pcm_s16le", RATE, 33), "audio_decode_failed"),
    ):
        assert refused(odd, pcm=pcm).error_type == error_type
    assert refused(b"x", pcm=PcmFormat("pcm_s16le", RATE, 1)).error_type == "audio_empty"


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_samples_are_refused(bad: float) -> None:
    sound = (VOICE / 32768).astype(np.float32)
    sound[12_345] = bad
    for body in (wav(sound), wav(np.stack([sound, np.zeros_like(sound)], 1))):
        assert refused(body).error_type == "non_finite_audio"
    decoded(wav(sound), end=0.5)
    decoded(wav(np.stack([sound, np.zeros_like(sound)], 1)), channels=1)


def test_doubles_that_become_infinite_are_refused() -> None:
    sound = VOICE / 32768
    sound[100] = 1e300
    assert refused(wav(sound)).error_type == "non_finite_audio"


def test_nothing_that_a_caller_sees_names_a_library_or_path() -> None:
    for body in (*NOT_AUDIO.values(), wav(VOICE, 0), b"fLaC" + bytes(50), b"OggS" + bytes(90)):
        message = refused(body).message
        assert not any(word in message for word in ("Errno", "ffmpeg", "libav", "PyAV", "/", "0x"))
