// A link with the token after "#" logs in by itself: that part of an address is never sent to a server or logged.
const token = decodeURIComponent(location.hash.slice(1));
if (token) {
  history.replaceState(null, "", location.pathname + location.search);
  document.getElementById("token").value = token;
  document.getElementById("login").submit();
}
