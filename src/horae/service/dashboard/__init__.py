"""The dashboard: pages of the API process, rendered from templates, with one small ES module per page.

How to add a page:

1. `pages/NAME.py`: `async def data(view: View) -> dict[str, Any]` returns what the page shows, as plain JSON values. It
   calls the functions of the API's routes, with `view.all_` (the services) and `view.who` (the identity), so that what
   a role may not see is masked in one place. Parameters of the path are in `view.path`, those of the query in
   `view.query`. `raise Refused(...)` becomes a page with the problem.
2. `templates/NAME.html` extends `base.html`: the frame of the page, headings, empty states and forms. Everything from
   users is escaped. Without inline script and `style=`: the Content-Security-Policy refuses both.
3. `static/NAME.js`, if the page is live: reads the first data with `embedded()`, draws it, and calls
   `live({refresh})`. `horae.js` has the parts: `element` (text is always text), `DataTable`, `send`, formats of numbers
   and times; `charts.js` has charts.
4. One line in `registry.PAGES`.

`GET path` renders the template with the data embedded; `GET /data + path` gives the same data as JSON, for updates. The
tests in `tests/service/dashboard` take all pages from the registry: roles, canaries, escaping, accessibility.
"""
