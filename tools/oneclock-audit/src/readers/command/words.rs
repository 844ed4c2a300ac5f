//! A command line in words, as a shell parts them, near enough for options.

use crate::source::Place;

/// A word of a command and where it stands.
#[derive(Clone, Debug)]
pub(in crate::readers) struct Arg {
    /// The word, without its quotes.
    pub(in crate::readers) text: String,
    /// Where it is.
    pub(in crate::readers) place: Place,
}

/// Longer texts are scripts, not commands.
const LONGEST: usize = 64 * 1024;

/// The words of a text that begins at `start`; what stands on its later lines has the place of its first.
pub(in crate::readers) fn split(text: &str, start: &Place) -> Vec<Arg> {
    let mut args = Vec::new();
    if text.len() > LONGEST {
        return args;
    }
    let (mut word, mut begun, mut quote, mut lines) = (String::new(), None, None, 0_u32);
    let mut chars = text.chars().peekable();
    let mut column = 0_u32;
    while let Some(c) = chars.next() {
        let at = column;
        column = column.saturating_add(1);
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), c) => word.push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                begun.get_or_insert(at);
            }
            (None, '\\') => match chars.next() {
                Some('\n') | None => {
                    lines += 1;
                    column = 0;
                }
                Some(next) => {
                    column = column.saturating_add(1);
                    begun.get_or_insert(at);
                    word.push(next);
                }
            },
            (None, c) if c.is_whitespace() || matches!(c, ';' | '|' | '&') => {
                push(&mut args, &mut word, &mut begun, start, lines);
                if !c.is_whitespace() {
                    let doubled = c != ';' && chars.peek() == Some(&c);
                    let text = if doubled { format!("{c}{c}") } else { c.to_string() };
                    if doubled {
                        chars.next();
                        column = column.saturating_add(1);
                    }
                    args.push(Arg { text, place: start.clone() });
                } else if c == '\n' {
                    args.push(Arg { text: ";".to_owned(), place: start.clone() });
                    lines += 1;
                    column = 0;
                }
            }
            (None, c) => {
                begun.get_or_insert(at);
                word.push(c);
            }
        }
    }
    push(&mut args, &mut word, &mut begun, start, lines);
    nested(args)
}

fn push(args: &mut Vec<Arg>, word: &mut String, begun: &mut Option<u32>, start: &Place, lines: u32) {
    if let Some(at) = begun.take() {
        let width = u32::try_from(word.chars().count().max(1)).unwrap_or(u32::MAX);
        let place = if lines == 0 {
            Place { file: start.file.clone(), line: start.line, column: start.column.saturating_add(at), width }
        } else {
            start.clone()
        };
        args.push(Arg { text: std::mem::take(word), place });
    }
}

/// `sh -c "a b"` is `a b`.
pub(in crate::readers) fn nested(args: Vec<Arg>) -> Vec<Arg> {
    let is_shell = |arg: &Arg| matches!(arg.text.rsplit('/').next().unwrap_or_default(), "sh" | "bash" | "ash");
    match args.as_slice() {
        [shell, flags, script, ..] if is_shell(shell) && flags.text.starts_with('-') && flags.text.ends_with('c') => {
            // A shell in a shell in a shell is nobody's command.
            if args.len() > 3 || script.text.contains(" -c ") {
                plain(script)
            } else {
                split(&script.text, &script.place)
            }
        }
        _ => args,
    }
}

fn plain(script: &Arg) -> Vec<Arg> {
    script
        .text
        .split_whitespace()
        .map(|word| Arg { text: word.trim_matches(['"', '\'']).to_owned(), place: script.place.clone() })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Source;

    #[track_caller]
    fn parts(text: &str, want: &[&str]) {
        let found: Vec<String> =
            split(text, &Source::new("a", "").place(1, 1, 1)).into_iter().map(|arg| arg.text).collect();
        assert_eq!(found, want, "{text:?}");
    }

    #[test]
    fn words_as_a_shell_parts_them() {
        parts("gunicorn -t 60 'a b'", &["gunicorn", "-t", "60", "a b"]);
        parts("./wait && exec uvicorn app:app;", &["./wait", "&&", "exec", "uvicorn", "app:app", ";"]);
        parts("gunicorn \\\n  --timeout 5", &["gunicorn", "--timeout", "5"]);
        parts("sh -c \"migrate && gunicorn -t 5\"", &["migrate", "&&", "gunicorn", "-t", "5"]);
        parts("bash -c \"sh -c 'bash -c x'\"", &["sh", "-c", "bash", "-c", "x"]);
        parts("a \"open", &["a", "open"]);
        parts("", &[]);
    }

    #[test]
    fn a_word_knows_its_column() {
        let args = split("gunicorn --timeout 60", &Source::new("a", "").place(3, 10, 1));
        assert_eq!(args.last().map(|arg| arg.place.to_string()).as_deref(), Some("a:3:29"));
    }
}
