"""Signatures of requests to S3-compatible stores, by the examples that AWS publishes (H02)."""

from __future__ import annotations

import datetime as dt
import hashlib
import re

import pytest

from tenantry.api.errors import StoreError
from tenantry.hosting.s3 import answers, signature
from tenantry.hosting.s3.signature import EMPTY, AccessKey, SigningScope

SUITE_KEY = AccessKey(identifier="AKIDEXAMPLE", secret="wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
SUITE_SCOPE = SigningScope(region="us-east-1", service="service")
SUITE_HEADERS = {"host": "example.amazonaws.com", "x-amz-date": "20150830T123600Z"}
UNRESERVED = "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


@pytest.mark.parametrize(
    ("method", "path", "query", "wanted"),
    [
        ("GET", "/", {}, "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
        ("POST", "/", {}, "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
        (
            "GET",
            "/",
            {"Param2": "value2", "Param1": "value1"},
            "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
        ),
        ("GET", f"/{UNRESERVED}", {}, "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f"),
        ("GET", "/", {"Param1": "value1"}, "a67d582fa61cc504c4bae71f336f98b97f1ea3c7a6bfe1b6e45aec72011b9aeb"),
    ],
    ids=[
        "get-vanilla",
        "post-vanilla",
        "get-vanilla-query-order-key-case",
        "get-unreserved",
        "get-vanilla-empty-query-key",
    ],
)
def test_the_suite_of_aws(method: str, path: str, query: dict[str, str], wanted: str) -> None:
    """H02: aws-sig-v4-test-suite."""
    text = signature.query_text(query)
    found = signature.authorization(method, path, text, SUITE_HEADERS, key=SUITE_KEY, scope=SUITE_SCOPE)
    assert found == (
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request,"
        f"SignedHeaders=host;x-amz-date,Signature={wanted}"
    )


S3_KEY = AccessKey(identifier="AKIAIOSFODNN7EXAMPLE", secret="wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
S3_HOST = {"host": "examplebucket.s3.amazonaws.com", "x-amz-date": "20130524T000000Z"}


@pytest.mark.parametrize(
    ("method", "path", "query", "headers", "body", "wanted"),
    [
        (
            "GET",
            "/test.txt",
            {},
            {"range": "bytes=0-9"},
            b"",
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        ),
        (
            "PUT",
            "/test%24file.text",
            {},
            {"date": "Fri, 24 May 2013 00:00:00 GMT", "x-amz-storage-class": "REDUCED_REDUNDANCY"},
            b"Welcome to Amazon S3.",
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
        ),
        ("GET", "/", {"lifecycle": ""}, {}, b"", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
        (
            "GET",
            "/",
            {"max-keys": "2", "prefix": "J"},
            {},
            b"",
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        ),
    ],
    ids=["get", "put", "lifecycle", "list"],
)
def test_the_examples_of_amazon_s3(
    *, method: str, path: str, query: dict[str, str], headers: dict[str, str], body: bytes, wanted: str
) -> None:
    """H02: Amazon S3 API Reference, "Examples: Signature Calculations"."""
    content = hashlib.sha256(body).hexdigest()
    signed = S3_HOST | {signature.CONTENT_HASH: content} | headers
    text = signature.query_text(query)
    scope = SigningScope(region="us-east-1")
    found = signature.authorization(method, path, text, signed, key=S3_KEY, scope=scope, content=content)
    assert found.endswith(f"Signature={wanted}")


def test_the_empty_hash_is_that_of_no_bytes() -> None:
    """H02: as in the documentation of AWS."""
    assert EMPTY == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@pytest.mark.parametrize(
    ("change", "value"),
    [("method", "PUT"), ("path", "/b"), ("query", "a=2"), ("content", "0" * 64)],
)
def test_each_part_of_a_request_is_signed(change: str, value: str) -> None:
    """H02: a request that is changed on its way has another signature."""
    parts = {"method": "GET", "path": "/a", "query": "a=1", "content": EMPTY}

    def signed(of: dict[str, str]) -> str:
        headers = {**S3_HOST, signature.CONTENT_HASH: of["content"]}
        scope = SigningScope(region="x")
        made = signature.authorization(
            of["method"], of["path"], of["query"], headers, key=S3_KEY, scope=scope, content=of["content"]
        )
        found = re.search("Signature=([0-9a-f]{64})$", made)
        assert found is not None
        return found[1]

    assert signed(parts) != signed(parts | {change: value})


def test_the_secret_is_in_no_text() -> None:
    """H02: messages and logs may show the key."""
    headers = {**S3_HOST, signature.CONTENT_HASH: EMPTY}
    made = signature.authorization("GET", "/", "", headers, key=S3_KEY, scope=SigningScope(region="x"))
    assert S3_KEY.secret not in f"{made} {S3_KEY!r} {S3_KEY}"


def test_what_is_escaped() -> None:
    """H02: as AWS escapes, not as HTML forms do."""
    assert signature.escaped("a b+c/é~", safe="/") == "a%20b%2Bc/%C3%A9~"
    assert signature.query_text({"prefix": "x/y", "a": "b=c"}) == "a=b%3Dc&prefix=x%2Fy"


def test_a_time_is_in_whole_seconds() -> None:
    """H02: the header x-amz-date."""
    assert signature.stamp(dt.datetime(2013, 5, 24, 1, 2, 3, 999_999, tzinfo=dt.UTC)) == "20130524T010203Z"


@pytest.mark.parametrize(
    ("status", "code", "words", "passing"),
    [
        (403, "RequestTimeTooSkewed", "correct the time", False),
        (403, "AccessDenied", "no right to list objects", False),
        (403, "", "no right to list objects", False),
        (301, "", "correct region", False),
        (404, "NoSuchBucket", "the bucket does not exist", False),
        (404, "", "no such bucket or object", False),
        (503, "SlowDown", "try again later", True),
        (500, "InternalError", "try again later", True),
        (507, "", "the store is full", False),
        (400, "Strange", "an S3-compatible store", False),
    ],
)
def test_a_refusal_is_one_sentence(status: int, code: str, words: str, *, passing: bool) -> None:
    """H02: its code is repeated, and no other text of the store."""
    body = f"<Error><Code>{code}</Code><Message>secret of the store</Message></Error>".encode()
    found = answers.refusal(status, body, "list objects", "offsite")
    told = str(found)
    assert words in told
    assert told.startswith('destination "offsite": ')
    assert told.endswith(f"(HTTP {status}{f', {code}' if code else ''})")
    assert "secret" not in told
    assert found.is_passing == passing


@pytest.mark.parametrize("code", ["a b", "<b>", "x" * 65, "a\nb"])
def test_a_strange_code_is_not_repeated(code: str) -> None:
    """H02: the store is another party."""
    found = answers.refusal(400, f"<Error><Code>{code}</Code></Error>".encode(), "list objects", "offsite")
    assert str(found).endswith("(HTTP 400)")


def test_a_page_is_read_with_and_without_a_namespace() -> None:
    """H02: stores differ."""
    items = "<Contents><Key>a&amp;b</Key><Size>3</Size></Contents>"
    for name in ("", ' xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'):
        more = "<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>"
        found = answers.page(f"<ListBucketResult{name}>{items}{more}</ListBucketResult>".encode(), "offsite")
        assert [(each.key, each.size) for each in found.objects] == [("a&b", 3)]
        assert found.following == "t"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html></html>",
        b"{}",
        b"<ListBucketResult><Contents/></ListBucketResult>",
        b"<ListBucketResult><Contents><Key>a</Key><Size>x</Size></Contents></ListBucketResult>",
        b'<!DOCTYPE x [<!ENTITY a "b">]><ListBucketResult>&a;</ListBucketResult>',
    ],
)
def test_what_is_no_page_is_refused(body: bytes) -> None:
    """H02: also a document with entities, which could grow without end."""
    with pytest.raises(StoreError, match="does not answer as S3 does"):
        answers.page(body, "offsite")
