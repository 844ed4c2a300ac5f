//! Lines `NAME=value`, and the filling in of `${NAME:-default}` that compose and shells do.

use std::collections::HashMap;

use super::Variable;
use crate::source::Source;

/// Longer values are left as they are: nothing that is read from them is that long.
const LONGEST: usize = 8 * 1024;

/// Variables with which a text can be filled in.
#[derive(Clone, Debug, Default)]
pub(in crate::readers) struct Vars(HashMap<String, String>);

/// The variables of a file of lines: what is quoted loses its quotes, what is behind ` #` is a comment.
pub(in crate::readers) fn lines(source: &Source) -> Vec<Variable> {
    source.text.lines().enumerate().filter_map(|(at, line)| one(source, at, line)).collect()
}

fn one(source: &Source, at: usize, line: &str) -> Option<Variable> {
    let text = line.trim_start();
    let indent = line.chars().count() - text.chars().count();
    let (bare, exported) = text.strip_prefix("export ").map_or((text, 0), |bare| (bare, "export ".len()));
    let (key, behind) = bare.split_once('=')?;
    let name = key.trim();
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-')) {
        return None;
    }
    let value = behind.trim_start();
    let before = behind.chars().count() - value.chars().count();
    let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''));
    let value = match quote.and_then(|quote| Some((quote, value.strip_prefix(quote)?))) {
        Some((quote, rest)) => rest.split(quote).next().unwrap_or_default(),
        None => value.split_once(" #").map_or(value, |(value, _)| value).trim_end(),
    };
    let column = indent + exported + key.chars().count() + 1 + before + usize::from(quote.is_some()) + 1;
    let place = source.place(at + 1, column, value.chars().count());
    Some(Variable { key: name.to_owned(), value: value.to_owned(), place })
}

// === Vars ===

impl Vars {
    /// The variables of a file, each filled in with those above it.
    pub(in crate::readers) fn of(variables: &[Variable]) -> Self {
        let mut vars = Self::default();
        for variable in variables {
            let value = vars.fill(&variable.value);
            vars.0.insert(variable.key.clone(), value);
        }
        vars
    }

    /// The value of one.
    pub(in crate::readers) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The text with every variable that is known, or has a default, filled in; others stay as they are.
    pub(in crate::readers) fn fill(&self, text: &str) -> String {
        self.filled(text, 4)
    }

    fn filled(&self, text: &str, deep: usize) -> String {
        if !text.contains('$') || text.len() > LONGEST || deep == 0 {
            return text.to_owned();
        }
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once('$') {
            out.push_str(before);
            if let Some(behind) = behind.strip_prefix('$') {
                out.push('$');
                rest = behind;
            } else if let Some((inner, behind)) = behind.strip_prefix('{').and_then(braced) {
                match self.expanded(inner, deep) {
                    Some(value) => out.push_str(&value),
                    None => {
                        out.push_str("${");
                        out.push_str(inner);
                        out.push('}');
                    }
                }
                rest = behind;
            } else {
                let end = behind.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(behind.len());
                let (name, behind) = behind.split_at_checked(end).unwrap_or((behind, ""));
                match self.get(name) {
                    Some(value) => out.push_str(value),
                    None => {
                        out.push('$');
                        out.push_str(name);
                    }
                }
                rest = behind;
            }
            // A variable made of variables made of variables: what it would become is nobody's address.
            if out.len() > LONGEST {
                return text.to_owned();
            }
        }
        out.push_str(rest);
        if out.len() > LONGEST { text.to_owned() } else { out }
    }

    /// `X`, `X:-default`, `X-default`.
    fn expanded(&self, inner: &str, deep: usize) -> Option<String> {
        let end = inner.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(inner.len());
        let (name, behind) = inner.split_at_checked(end)?;
        if let Some(value) = self.get(name).filter(|value| !value.is_empty()) {
            return Some(value.to_owned());
        }
        let default = behind.strip_prefix(":-").or_else(|| behind.strip_prefix('-'))?;
        Some(self.filled(default, deep - 1))
    }
}

/// Up to the brace that closes, near enough for something that anybody wrote.
fn braced(text: &str) -> Option<(&str, &str)> {
    const FAR: usize = 1000;
    let mut open = 1_usize;
    for (at, c) in text.char_indices().take(FAR) {
        match c {
            '{' => open += 1,
            '}' if open == 1 => return Some((text.get(..at)?, text.get(at + 1..)?)),
            '}' => open -= 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn fills(text: &str, want: &str) {
        let file =
            Source::new(".env", "HOST=cart\nPORT=8080\nADDR=${HOST}:${PORT}\nEMPTY=\nexport T=\"60\" # seconds\n");
        assert_eq!(Vars::of(&lines(&file)).fill(text), want, "{text:?}");
    }

    #[test]
    fn what_is_known_or_has_a_default_is_filled_in() {
        fills("http://${ADDR}/x", "http://cart:8080/x");
        fills("$HOST:$PORT", "cart:8080");
        fills("${EMPTY:-other} ${NOBODY-there} ${T:-1}", "other there 60");
        fills("${NOBODY} $NOBODY ${NOBODY:?needed}", "${NOBODY} $NOBODY ${NOBODY:?needed}");
        fills("${NOBODY:-${ADDR}}", "cart:8080");
        fills("100$$", "100$");
        fills("${ ${ ${", "${ ${ ${");
    }

    #[test]
    fn variables_of_variables_do_not_explode() {
        let text: String = std::iter::once("A0=xxxxxxxxxx\n".to_owned())
            .chain((1..40).map(|n| format!("A{n}=${{A{0}}}${{A{0}}}\n", n - 1)))
            .collect();
        let vars = Vars::of(&lines(&Source::new(".env", text)));
        assert!(vars.fill("${A39}").len() <= LONGEST * 2);
    }

    #[test]
    fn a_place_is_that_of_the_value() {
        let variables = lines(&Source::new(".env", "# x\n  export T=\"60\"\nU = 5 # s\nnot one\n"));
        let told: Vec<String> =
            variables.iter().map(|one| format!("{}={} at {}", one.key, one.value, one.place)).collect();
        assert_eq!(told, ["T=60 at .env:2:13", "U=5 at .env:3:5"]);
    }
}
