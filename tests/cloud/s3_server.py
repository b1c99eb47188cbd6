"""moto's server for any key. Its router would merge `//` and refuse line breaks, unlike S3."""

import sys

import werkzeug.routing
from moto.moto_server.utilities import RegexConverter
from moto.server import main

plain_map = werkzeug.routing.Map.__init__


def unmerged_map(self, *args, **settings):
    settings["merge_slashes"] = False
    plain_map(self, *args, **settings)


plain_regex = RegexConverter.__init__


def regex_over_lines(self, url_map, *items):
    plain_regex(self, url_map, *[f"(?s:{item})" for item in items])


werkzeug.routing.Map.__init__ = unmerged_map
RegexConverter.__init__ = regex_over_lines
main(sys.argv[1:])
