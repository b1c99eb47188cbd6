"""gcp-storage-emulator, with features of Google Cloud Storage that it lacks.

These are pages of listings, preconditions on generations, verification of MD5, metadata in a
rewrite, exact object names, and authentication. In addition it keeps its metadata in memory only,
and accepts more than five connections at once.
"""

import os
import sys
from http import HTTPStatus, server
from urllib.parse import quote

from gcp_storage_emulator.handlers import objects
from gcp_storage_emulator.storage import Storage
from gcp_storage_emulator import server as emulator

PORT = int(sys.argv[1])
Storage._write_config_to_file = lambda self: None
Storage._object_path = lambda self, bucket, name: f"{bucket}/{name.encode().hex()}"
server.HTTPServer.request_queue_size = 256

plain_resource = objects._make_object_resource


def resource(base_url, bucket, name, *args, **kwargs):
    made = plain_resource(base_url, bucket, name, *args, **kwargs)
    # The address of the server itself: a proxy in front of it may have ended.
    made["mediaLink"] = f"http://127.0.0.1:{PORT}/download/storage/v1/b/{bucket}/o/{quote(name, safe='')}?alt=media"
    return made


objects._make_object_resource = resource


def parameter(request, key, default=None):
    return request.query.get(key, [default])[0]


def generation_matches(request, response, storage, key, bucket, name):
    """Returns whether an object has the requested generation; 0 means that it does not exist."""
    wanted = parameter(request, key)
    if wanted is None:
        return True
    existing = storage.objects.get(bucket, {}).get(name)
    if (existing["generation"] if existing else "0") == wanted:
        return True
    response.status = HTTPStatus.PRECONDITION_FAILED
    response.json({"error": {"code": 412, "message": "not that generation", "errors": [{"reason": "conditionNotMet"}]}})
    return False


plain_insert, plain_get, plain_rewrite = objects.insert, objects.get, objects.rewrite


def insert(request, response, storage, *args, **kwargs):
    meta = request.data.get("meta", request.data) if isinstance(request.data, dict) else {}
    name = parameter(request, "name") or meta.get("name")
    expected, content = meta.get("md5Hash"), request.data.get("content") if isinstance(request.data, dict) else None
    if expected and content is not None and expected != objects._md5(content):
        response.status = HTTPStatus.BAD_REQUEST
        response.json({"error": {"code": 400, "message": f"Provided MD5 hash {expected} doesn't match calculated MD5 hash"}})
    elif generation_matches(request, response, storage, "ifGenerationMatch", request.params["bucket_name"], name):
        plain_insert(request, response, storage, *args, **kwargs)


def get(request, response, storage, *args, **kwargs):
    key = request.params["bucket_name"], request.params["object_id"]
    if key[1] not in storage.objects.get(key[0], {}):
        response.status = HTTPStatus.NOT_FOUND
    elif generation_matches(request, response, storage, "ifGenerationMatch", *key):
        plain_get(request, response, storage, *args, **kwargs)


def rewrite(request, response, storage, *args, **kwargs):
    key = request.params["bucket_name"], request.params["object_id"]
    if not generation_matches(request, response, storage, "ifSourceGenerationMatch", *key):
        return
    plain_rewrite(request, response, storage, *args, **kwargs)
    made = storage.objects.get(request.params["dest_bucket_name"], {}).get(request.params["dest_object_id"])
    if made and request.data:
        made.update({key: value for key, value in request.data.items() if key in objects._WRITABLE_FIELDS})


def ls(request, response, storage, *args, **kwargs):
    bucket, prefix = request.params["bucket_name"], parameter(request, "prefix")
    try:
        files, prefixes = storage.get_file_list(bucket, prefix, parameter(request, "delimiter"))
    except objects.NotFound:
        response.status = HTTPStatus.NOT_FOUND
        return
    items = sorted([(item["name"].encode(), item) for item in files] + [(name.encode(), None) for name in prefixes], key=lambda i: i[0])
    after, limit = parameter(request, "pageToken", "").encode(), int(parameter(request, "maxResults", 1000))
    items = [item for item in items if item[0] > after]
    page, rest = items[:limit], items[limit:]
    answer = {"kind": "storage#objects", "items": [item for _, item in page if item],
              "prefixes": [name.decode() for name, item in page if not item]}
    if rest:
        answer["nextPageToken"] = page[-1][0].decode()
    response.json(answer)


changed = {objects.insert: insert, objects.get: get, objects.rewrite: rewrite, objects.ls: ls}
for _, handlers in emulator.HANDLERS:
    handlers.update({method: changed[handler] for method, handler in handlers.items() if handler in changed})

plain_handle = emulator.Router.handle


def handle(self, method):
    """Requires the token for buckets whose names begin with `private`."""
    handler = self._request_handler
    if "/b/private" not in handler.path or handler.headers.get("Authorization") == f"Bearer {os.environ['GOOGLE_TOKEN']}":
        return plain_handle(self, method)
    emulator.Request(handler, method).data
    response = emulator.Response(handler)
    response.status = HTTPStatus.UNAUTHORIZED
    response.json({"error": {"code": 401, "message": "Invalid Credentials", "errors": [{"reason": "authError"}]}})
    response.close()


emulator.Router.handle = handle
emulator.create_server("127.0.0.1", PORT, in_memory=True).run()
