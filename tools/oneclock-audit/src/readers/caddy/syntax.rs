//! The grammar of a Caddyfile: words, lines, blocks; snippets put in their place.

use std::collections::HashMap;

use crate::source::{Place, Source};

/// Deeper than what people write.
const DEEPEST: usize = 24;
/// A snippet within a snippet, and so on.
const DEEPEST_IMPORT: usize = 4;
/// So many lines come in by snippets.
const MOST_IMPORTED: usize = 20_000;

/// A word, without its quotes.
#[derive(Clone, Debug)]
pub(super) struct Word {
    pub(super) text: String,
    pub(super) place: Place,
}

/// A line, and what stands between its braces.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) words: Vec<Word>,
    pub(super) block: Option<Vec<Line>>,
}

/// Blocks to be put in place, with the number of their lines.
type Snippets = HashMap<String, (usize, Vec<Line>)>;

/// The lines of a file; where it is none, the place at which that shows.
pub(super) fn parse(source: &Source) -> Result<Vec<Line>, (Place, &'static str)> {
    let mut around: Vec<(Line, Vec<Line>)> = Vec::new();
    let mut here: Vec<Line> = Vec::new();
    let mut open: Vec<Word> = Vec::new();
    for words in lines(source) {
        let Some(last) = words.last() else { continue };
        let (last, place) = (last.text.clone(), last.place.clone());
        if words.len() == 1 && last == "}" {
            let Some((mut line, before)) = around.pop() else { return Err((place, "a `}` too many")) };
            line.block = Some(std::mem::replace(&mut here, before));
            here.push(line);
            continue;
        }
        open.extend(words);
        match last.as_str() {
            "{" => {
                open.pop();
                if around.len() >= DEEPEST {
                    return Err((place, "deeper than what is read"));
                }
                around.push((Line { words: std::mem::take(&mut open), block: None }, std::mem::take(&mut here)));
            }
            "\\" => drop(open.pop()),
            // Addresses go on behind a comma.
            last if last.ends_with(',') && around.is_empty() => {}
            _ => here.push(Line { words: std::mem::take(&mut open), block: None }),
        }
    }
    match around.pop() {
        Some((line, _)) => Err((
            line.words.first().map_or_else(|| source.place(1, 1, 1), |word| word.place.clone()),
            "a block that is never closed",
        )),
        None => Ok(here),
    }
}

/// The words of each line; a quote may go on over several.
fn lines(source: &Source) -> Vec<Vec<Word>> {
    let mut all = Vec::new();
    let mut words = Vec::new();
    let (mut line, mut column) = (1, 1);
    let mut quote: Option<char> = None;
    let mut open: Option<(usize, usize, String)> = None;
    let mut chars = source.text.chars().peekable();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some('"'), '\\') if chars.peek() == Some(&'"') => {
                if let Some((_, _, text)) = &mut open {
                    text.extend(chars.next());
                }
                column += 1;
            }
            (Some(mark), c) if c == mark => quote = None,
            (Some(_), c) => open.get_or_insert((line, column, String::new())).2.push(c),
            (None, '"' | '`') if open.is_none() => {
                quote = Some(c);
                open = Some((line, column + 1, String::new()));
            }
            (None, '#') if open.is_none() => while chars.next_if(|c| *c != '\n').is_some() {},
            (None, c) if c.is_whitespace() => words.extend(closed(source, open.take())),
            (None, c) => open.get_or_insert((line, column, String::new())).2.push(c),
        }
        column += 1;
        if c == '\n' {
            (line, column) = (line + 1, 1);
            if quote.is_none() {
                all.push(std::mem::take(&mut words));
            }
        }
    }
    words.extend(closed(source, open));
    all.push(words);
    all
}

fn closed(source: &Source, open: Option<(usize, usize, String)>) -> Option<Word> {
    let (line, column, text) = open?;
    let width = text.chars().count();
    Some(Word { text, place: source.place(line, column, width) })
}

/// The lines with every snippet in its place; an `import` of anything else stays.
pub(super) fn imported(lines: Vec<Line>) -> Vec<Line> {
    let mut snippets: Snippets = HashMap::new();
    let mut rest = Vec::new();
    for line in lines {
        let name =
            line.words.first().and_then(|word| word.text.strip_prefix('(')?.strip_suffix(')')).map(str::to_owned);
        match (name, line.block) {
            (Some(name), Some(block)) => drop(snippets.insert(name, (block.iter().map(Line::size).sum(), block))),
            (_, block) => rest.push(Line { words: line.words, block }),
        }
    }
    let mut left = MOST_IMPORTED;
    put(rest, &snippets, 0, &mut left)
}

fn put(lines: Vec<Line>, snippets: &Snippets, depth: usize, left: &mut usize) -> Vec<Line> {
    let mut all = Vec::with_capacity(lines.len());
    for mut line in lines {
        line.block = line.block.map(|block| put(block, snippets, depth, left));
        let snippet = line.is("import").then(|| line.words.get(1)).flatten().and_then(|name| snippets.get(&name.text));
        match snippet.filter(|(size, _)| depth < DEEPEST_IMPORT && size <= left) {
            Some((size, snippet)) => {
                *left -= size;
                all.extend(put(snippet.clone(), snippets, depth + 1, left));
            }
            None => all.push(line),
        }
    }
    all
}

// === Line ===

impl Line {
    /// Whether it begins with this word.
    pub(super) fn is(&self, name: &str) -> bool {
        self.words.first().is_some_and(|word| word.text == name)
    }

    /// The word behind the first.
    pub(super) fn value(&self) -> Option<&Word> {
        self.words.get(1)
    }

    fn size(&self) -> usize {
        1 + self.block.iter().flatten().map(Self::size).sum::<usize>()
    }
}
