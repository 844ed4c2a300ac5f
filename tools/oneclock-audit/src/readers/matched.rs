//! Which requests a rule is for, where it has several matches: paths, each with its methods.

/// What people write at most; Gateway API allows no more in a rule.
pub(super) const MOST_MATCHES: usize = 64;

/// Requests that a rule is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Matched {
    /// The path, as it is written; `None` for every path.
    pub(super) path: Option<String>,
    /// The methods; none for every method.
    pub(super) methods: Vec<String>,
}

/// Matches, each with a path and a method, by their path. Without any, all requests.
pub(super) fn matched<'a>(matches: impl Iterator<Item = (Option<&'a str>, Option<&'a str>)>) -> Vec<Matched> {
    let mut all: Vec<(Matched, bool)> = Vec::new();
    for (path, method) in matches.take(MOST_MATCHES) {
        let known = all.iter_mut().find(|(known, _)| known.path.as_deref() == path);
        let (known, every) = match known {
            Some(known) => known,
            None => {
                all.push((Matched { path: path.map(str::to_owned), methods: Vec::new() }, false));
                let Some(last) = all.last_mut() else { continue };
                last
            }
        };
        match method {
            Some(method) if !known.methods.iter().any(|other| other == method) => known.methods.push(method.to_owned()),
            Some(_) => {}
            None => *every = true,
        }
    }
    if all.is_empty() {
        return vec![Matched::default()];
    }
    let methods =
        |(known, every): (Matched, bool)| if every { Matched { methods: Vec::new(), ..known } } else { known };
    all.into_iter().map(methods).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn comes_to(matches: &[(Option<&str>, Option<&str>)], want: &[(Option<&str>, &[&str])]) {
        let found = matched(matches.iter().copied());
        let found: Vec<_> =
            found.iter().map(|one| (one.path.as_deref(), one.methods.iter().map(String::as_str).collect())).collect();
        let want: Vec<(_, Vec<_>)> = want.iter().map(|(path, methods)| (*path, methods.to_vec())).collect();
        assert_eq!(found, want);
    }

    #[test]
    fn a_match_without_a_method_is_for_every_method_of_its_path() {
        comes_to(&[], &[(None, &[])]);
        comes_to(&[(Some("/a"), Some("GET")), (Some("/a"), Some("HEAD"))], &[(Some("/a"), &["GET", "HEAD"])]);
        comes_to(&[(Some("/a"), Some("GET")), (Some("/a"), None)], &[(Some("/a"), &[])]);
        comes_to(&[(Some("/a"), Some("GET")), (Some("/b"), None)], &[(Some("/a"), &["GET"]), (Some("/b"), &[])]);
    }
}
