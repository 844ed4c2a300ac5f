//! What a router's rule says plainly: hosts, a path, methods. All that it may also say is left aside.

/// Taken from a rule.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) hosts: Vec<String>,
    pub(super) path: Option<String>,
    pub(super) methods: Vec<String>,
}

/// ``Host(`a.example`, `b.example`) && PathPrefix(`/cart`) && Method(`GET`)``
pub(super) fn rule(text: &str) -> Rule {
    let mut rule = Rule::default();
    for (name, args) in calls(text) {
        match name {
            "Host" | "HostSNI" => rule.hosts.extend(args),
            "PathPrefix" | "Path" if rule.path.is_none() => rule.path = args.into_iter().next(),
            "Method" => rule.methods.extend(args),
            _ => {}
        }
    }
    rule
}

/// The functions of a rule that are not negated, with their arguments.
fn calls(text: &str) -> Vec<(&str, Vec<String>)> {
    let mut calls = Vec::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('(') {
        let name_at = before.rfind(|c: char| !c.is_ascii_alphanumeric()).map_or(0, |at| at + 1);
        let (around, name) = before.split_at_checked(name_at).unwrap_or(("", before));
        if name.is_empty() {
            rest = behind;
            continue;
        }
        let (args, behind) = args(behind);
        if !around.trim_end().ends_with('!') {
            calls.push((name, args));
        }
        rest = behind;
    }
    calls
}

/// Quoted arguments up to the closing parenthesis, and what stands behind it.
fn args(text: &str) -> (Vec<String>, &str) {
    let mut args = Vec::new();
    let mut rest = text;
    loop {
        let Some(at) = rest.find(['`', '"', '\'', ')']) else { return (args, "") };
        let (mark, behind) =
            rest.get(at..).and_then(|rest| Some((rest.chars().next()?, rest.get(1..)?))).unwrap_or((')', ""));
        if mark == ')' {
            return (args, behind);
        }
        let Some((arg, behind)) = behind.split_once(mark) else { return (args, "") };
        args.push(arg.to_owned());
        rest = behind;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_rule_says_plainly() {
        let read = rule(
            "Host(`a.example`, `b.example`) && (PathPrefix(`/cart`) || Path(`/x`)) && Method(`GET`) && !Host(`c`)",
        );
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let want = Rule {
            hosts: words(&["a.example", "b.example"]),
            path: Some("/cart".to_owned()),
            methods: words(&["GET"]),
        };
        assert_eq!(read, want);
        for broken in ["Host(", "Host(`", ")", "((", "Host(`a", "é(`x`)"] {
            assert_eq!(rule(broken).hosts, Vec::<String>::new(), "{broken}");
        }
    }
}
