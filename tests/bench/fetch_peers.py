"""Other clients, each fetching the same files its best way.  Runs with the peers' own interpreter, without our package.

fetch_peers.py CLIENT ENDPOINT FOLDER THREADS KEY...      (keys of the bucket "bench", or a repository's name)
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

BUCKET = "bench"


def place(folder: str, key: str) -> str:
    path = Path(folder, key)
    path.parent.mkdir(parents=True, exist_ok=True)
    return str(path)


def in_threads(work: Callable[[str], object], keys: Sequence[str], threads: int) -> None:
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, keys))


def boto3_download_file(endpoint: str, folder: str, threads: int, keys: Sequence[str]) -> None:
    import boto3
    from botocore.config import Config

    client: Any = boto3.client(
        "s3", endpoint_url=endpoint, region_name="us-east-1", config=Config(s3={"addressing_style": "path"})
    )
    for key in keys:
        client.download_file(BUCKET, key, place(folder, key))


def obstore_s3(endpoint: str, folder: str, threads: int, keys: Sequence[str]) -> None:
    from obstore.store import S3Store

    store = S3Store(
        BUCKET, endpoint=endpoint, region="us-east-1", virtual_hosted_style_request=False,
        access_key_id=os.environ["AWS_ACCESS_KEY_ID"], secret_access_key=os.environ["AWS_SECRET_ACCESS_KEY"],
        client_options={"allow_http": True},
    )  # fmt: skip
    _obstore(store, folder, threads, keys)


def obstore_http(endpoint: str, folder: str, threads: int, keys: Sequence[str]) -> None:
    from obstore.store import HTTPStore

    _obstore(HTTPStore.from_url(f"{endpoint}/{BUCKET}/", client_options={"allow_http": True}), folder, threads, keys)


def _obstore(store: Any, folder: str, threads: int, keys: Sequence[str]) -> None:
    import obstore

    def one(key: str) -> None:
        with Path(place(folder, key)).open("wb", buffering=0) as file:
            for piece in obstore.get(store, key).stream(min_chunk_size=4 << 20):
                file.write(piece)

    in_threads(one, keys, threads)


def snapshot_download(endpoint: str, folder: str, threads: int, keys: Sequence[str]) -> None:
    os.environ |= {"HF_ENDPOINT": endpoint, "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    import huggingface_hub

    huggingface_hub.snapshot_download(keys[0], local_dir=folder, max_workers=threads)


def transfer_manager(endpoint: str, folder: str, threads: int, keys: Sequence[str]) -> None:
    os.environ["STORAGE_EMULATOR_HOST"] = endpoint
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage
    from google.cloud.storage import transfer_manager as manager

    bucket = storage.Client(credentials=AnonymousCredentials(), project="bench").bucket(BUCKET)
    results = manager.download_many_to_path(
        bucket, list(keys), destination_directory=folder, worker_type="thread", max_workers=threads
    )
    failed = [result for result in results if result is not None]
    if failed:
        raise SystemExit(str(failed[0]))


def kserve(endpoint: str, folder: str, threads: int, keys: Sequence[str]) -> None:
    os.environ |= {"AWS_ENDPOINT_URL": endpoint, "S3_USER_VIRTUAL_BUCKET": "false", "S3_VERIFY_SSL": "0"}
    from kserve_storage import Storage

    Storage.download(f"s3://{BUCKET}/big", folder)


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5:])
