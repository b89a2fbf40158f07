"""Exit with status 0 if a page of this node's HTTP server answers with status 200.

    python probe.py health|live

The environment variables of the node, ONCECAST_SERVE_HTTP and ONCECAST_SERVE_HTTP_TOKEN_FILE, say
where the server listens and which token it requires.
"""

import os
import sys
from pathlib import Path
from urllib.request import Request, urlopen

port = os.environ["ONCECAST_SERVE_HTTP"].rpartition(":")[2]
request = Request(f"http://127.0.0.1:{port}/{sys.argv[1]}")
if token := os.environ.get("ONCECAST_SERVE_HTTP_TOKEN_FILE"):
    request.add_header("Authorization", f"Bearer {Path(token).read_text().strip()}")
try:
    urlopen(request, timeout=3)
except OSError as error:
    sys.exit(str(error))
