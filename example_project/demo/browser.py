"""A browser without a screen: follows redirects, keeps cookies, and sends forms with their CSRF token."""

import re
import secrets
from http.cookiejar import CookieJar
from urllib.request import HTTPCookieProcessor, ProxyHandler, Request, build_opener

TOKEN = re.compile(r'name="csrfmiddlewaretoken" value="(\w+)"')


class Browser:
    def __init__(self, site: str) -> None:
        self.site = site
        self._http = build_opener(ProxyHandler({}), HTTPCookieProcessor(CookieJar()))

    def get(self, path: str) -> str:
        with self._http.open(self.site + path, timeout=120) as response:
            return response.read().decode()

    def submit(self, path: str, fields: dict, files: dict | None = None) -> str:
        """Fill in the form of a page and send it; return the address of the page that follows.

        Raises:
            ValueError: the page has no form, or the form was shown again because of a wrong value.
        """
        token = TOKEN.search(self.get(path))
        if token is None:
            raise ValueError(f"{path} has no form.")
        body, kind = multipart({"csrfmiddlewaretoken": token[1], **fields}, files or {})
        headers = {"Content-Type": kind, "Referer": self.site + path}
        with self._http.open(Request(self.site + path, body, headers), timeout=120) as response:
            page, address = response.read().decode(), response.url
        if 'class="errorlist' in page or 'class="errornote' in page:
            raise ValueError(f"{path} refused {fields}.")
        return address.removeprefix(self.site)


def multipart(fields: dict, files: dict[str, list[tuple[str, bytes]]]) -> tuple[bytes, str]:
    """Return the body of a form with files, and its content type. Source: RFC 7578."""
    border = secrets.token_hex(16)
    parts = [(f'name="{name}"', str(value).encode()) for name, value in fields.items()]
    parts += [
        (f'name="{name}"; filename="{file}"', data) for name, all_of_it in files.items() for file, data in all_of_it
    ]
    body = b"".join(
        f"--{border}\r\nContent-Disposition: form-data; {header}\r\n\r\n".encode() + value + b"\r\n"
        for header, value in parts
    )
    return body + f"--{border}--\r\n".encode(), f"multipart/form-data; boundary={border}"
