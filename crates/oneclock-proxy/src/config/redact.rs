//! Values as they are shown: without what must not be seen, and not longer than can be read.

/// What stands in a password's place.
const HIDDEN: &str = "***";
/// More of a value says nothing more in an error.
const LONGEST: usize = 80;

/// A URL without its password, whether it is well-formed or not: everything between `://` and the last `@` but the
/// user's name, and the value of every parameter that is called a password or a secret.
pub(super) fn url(text: &str) -> String {
    let mut out = match text.split_once("://") {
        Some((scheme, rest)) => match rest.rsplit_once('@') {
            Some((credentials, host)) => match credentials.split_once(':') {
                Some((user, _)) => format!("{scheme}://{user}:{HIDDEN}@{host}"),
                None => text.to_owned(),
            },
            None => text.to_owned(),
        },
        None => text.to_owned(),
    };
    if let Some((head, parameters)) = out.split_once('?') {
        let hide = |parameter: &str| match parameter.split_once('=') {
            Some((name, _)) if is_secret(name) => format!("{name}={HIDDEN}"),
            _ => parameter.to_owned(),
        };
        let parameters: Vec<String> = parameters.split('&').map(hide).collect();
        out = format!("{head}?{}", parameters.join("&"));
    }
    out
}

fn is_secret(name: &str) -> bool {
    let name = name.to_lowercase();
    name.contains("pass") || name.contains("secret") || name.contains("token")
}

/// A value in an error.
pub(crate) fn shown(text: &str) -> String {
    let text = url(text);
    let mut plain: String = text.chars().take(LONGEST).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(LONGEST).is_some() {
        plain.push('…');
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_is_shown() {
        for (written, shown) in [
            ("postgres://u:pw@db/keys", "postgres://u:***@db/keys"),
            ("postgres://u:p@w/x:y@db:5432/keys?sslmode=require", "postgres://u:***@db:5432/keys?sslmode=require"),
            ("postgres://u@db/keys?password=pw&a=b", "postgres://u@db/keys?password=***&a=b"),
            ("postgres://u:@db", "postgres://u:***@db"),
            ("http://app:3000", "http://app:3000"),
            ("sqlite:/var/keys.db", "sqlite:/var/keys.db"),
        ] {
            assert_eq!(url(written), shown);
        }
    }

    #[test]
    fn what_is_long_is_cut() {
        assert_eq!(shown(&"x".repeat(500)).chars().count(), LONGEST + 1);
        assert_eq!(shown("a\nb"), "a b");
    }
}
