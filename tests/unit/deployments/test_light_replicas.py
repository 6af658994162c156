"""Replicas that compute nothing load no torch: half a gigabyte and seconds of start each."""

import subprocess
import sys

SCRIPT = """
import sys
import serve_app.builder
import serve_app.http.app
import serve_app.service
print(sorted({"torch", "torchaudio", "av", "funasr"} & set(sys.modules)))
"""


def test_ingress_and_cache_import_no_torch() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.strip() == "[]"
