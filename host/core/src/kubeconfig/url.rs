//! URLs of servers and proxies: accepts exactly what Kubernetes clients accept. Errors hold no text of a URL.

use crate::contract::credentials::Url;
use std::net::Ipv6Addr;

/// Reads the URL of a server: http or https, with neither userinfo, query nor fragment.
///
/// # Errors
/// Says what is wrong, without the text.
pub(crate) fn server(text: &str) -> Result<Url, &'static str> {
    if hides_more(text) {
        return Err("a server with a user, a query or a fragment");
    }
    let url = parse(text)?;
    if matches!(url.scheme.as_str(), "http" | "https") {
        Ok(url)
    } else {
        Err("neither http nor https")
    }
}

/// Whether a text may hold a user, a query or a fragment, which may be credentials.
pub(super) fn hides_more(text: &str) -> bool {
    text.contains(['@', '?', '#'])
}

/// Reads the part of a proxy's URL that may be shown: leaves out userinfo, query and fragment.
///
/// # Errors
/// Says what is wrong, without the text.
pub(super) fn proxy(text: &str) -> Result<Url, &'static str> {
    let (scheme, rest) = text.split_once("://").ok_or("not a URL")?;
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let slash = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at_checked(slash).ok_or("not a URL")?;
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    let url = parse(&format!("{scheme}://{host}{path}"))?;
    let known = matches!(url.scheme.as_str(), "http" | "https" | "socks5");
    if known {
        Ok(url)
    } else {
        Err("neither http, https nor socks5")
    }
}

fn parse(text: &str) -> Result<Url, &'static str> {
    let (scheme, rest) = text.split_once("://").ok_or("not a URL")?;
    let slash = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at_checked(slash).ok_or("not a URL")?;
    if !path
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'\\' | b'"' | b'<' | b'>'))
    {
        return Err("a path with characters that are not allowed in a URL");
    }
    let (host, port) = host_and_port(authority)?;
    Ok(Url {
        scheme: scheme.to_ascii_lowercase(),
        host,
        port,
        path: path.to_owned(),
    })
}

fn host_and_port(authority: &str) -> Result<(String, Option<u16>), &'static str> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest
                .split_once(']')
                .ok_or("an address without its closing bracket")?;
            host.parse::<Ipv6Addr>()
                .map_err(|_| "not an IPv6 address")?;
            (
                host,
                port.strip_prefix(':')
                    .or(if port.is_empty() { None } else { Some("?") }),
            )
        }
        None => {
            let (host, port) = authority
                .split_once(':')
                .map_or((authority, None), |(host, port)| (host, Some(port)));
            let named =
                |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
            if host.is_empty() || !host.bytes().all(named) {
                return Err("not a host");
            }
            (host, port)
        }
    };
    Ok((
        host.to_ascii_lowercase(),
        port.map(port_number).transpose()?,
    ))
}

fn port_number(text: &str) -> Result<u16, &'static str> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse()
        .ok()
        .filter(|port| digits && *port > 0)
        .ok_or("not a port")
}

/// Writes a URL that a guest proposes.
///
/// # Errors
/// When reading it would not give the same URL.
pub(super) fn write(url: &Url) -> Result<String, &'static str> {
    let brackets = url.host.contains(':');
    let host = if brackets {
        format!("[{}]", url.host)
    } else {
        url.host.clone()
    };
    let port = url.port.map(|port| format!(":{port}")).unwrap_or_default();
    let text = format!("{}://{host}{port}{}", url.scheme, url.path);
    if server(&text)? == *url {
        Ok(text)
    } else {
        Err("not a URL")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(scheme: &str, host: &str, port: Option<u16>, path: &str) -> Url {
        Url {
            scheme: scheme.into(),
            host: host.into(),
            port,
            path: path.into(),
        }
    }

    #[test]
    fn parses_and_writes_servers() {
        for (text, expected) in [
            (
                "https://api.example.com:6443",
                url("https", "api.example.com", Some(6443), ""),
            ),
            (
                "HTTPS://API.example.com/",
                url("https", "api.example.com", None, "/"),
            ),
            (
                "https://[2001:DB8::1]:443/k8s/c-1",
                url("https", "2001:db8::1", Some(443), "/k8s/c-1"),
            ),
            ("http://10.0.0.1", url("http", "10.0.0.1", None, "")),
        ] {
            assert_eq!(server(text).as_ref(), Ok(&expected), "{text}");
            assert_eq!(
                write(&expected).as_deref().map(server),
                Ok(Ok(expected)),
                "{text}"
            );
        }
    }

    #[test]
    fn refuses_urls_that_could_hide_more() {
        for text in [
            "",
            "api:6443",
            "ftp://a",
            "https://",
            "https://u:p@a",
            "https://a?b",
            "https://a#b",
            "https://a:0",
            "https://a:65536",
            "https://a:+1",
            "https://a:1:2",
            "https://[::1",
            "https://[::1]x",
            "https://[a]",
            "https://a b",
            "https://a/ b",
            "https://a%41",
            "https://ä",
            "https://a:",
            "https://a/\n",
            "https:///a",
        ] {
            assert!(server(text).is_err(), "{text}");
        }
        for guessed in [
            url("https", "a@b", None, ""),
            url("https", "a", None, "?b"),
            url("https", "a/b", None, "/c"),
        ] {
            assert!(write(&guessed).is_err(), "{guessed:?}");
        }
    }

    #[test]
    fn reads_only_the_public_part_of_a_proxy() {
        assert_eq!(
            proxy("http://user:pa/ss@proxy:3128/").ok(),
            None,
            "a slash ends the authority"
        );
        assert_eq!(
            proxy("http://user:p@ss@proxy:3128/x?y#z"),
            Ok(url("http", "proxy", Some(3128), "/x"))
        );
        assert_eq!(
            proxy("socks5://proxy"),
            Ok(url("socks5", "proxy", None, ""))
        );
        assert!(proxy("proxy:3128").is_err());
    }
}
