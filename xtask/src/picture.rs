//! `cargo xtask picture`: what the README shows of the demo, from one real run: the picture of its first story, and the
//! table of all of them.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

const DEMO: &[&str] = &["run", "--quiet", "--release", "--", "demo"];
const PICTURE: &str = "docs/demo.svg";
const README: &str = "README.md";
const WIDTH: usize = 1_060;

/// The story that comes after the one in the picture, and the heading of the table.
const NEXT_STORY: &str = "stalled-body";
const TABLE: &str = "In short";

/// Where the table stands in the README.
const BEGIN: &str = "<!-- demo: written by `cargo xtask picture` -->\n```text\n";
const END: &str = "```\n<!-- demo: end -->";

pub(crate) fn draw(root: &Path) -> Result<(), String> {
    let output = Command::new(env!("CARGO"))
        .args(DEMO)
        .current_dir(root)
        .env("CLICOLOR_FORCE", "1") // colours although nobody looks
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("picture: `cargo {}` did not run: {error}", DEMO.join(" ")))?;
    if !output.status.success() {
        return Err(format!("picture: `cargo {}` ended with {}", DEMO.join(" "), output.status));
    }
    let text = String::from_utf8(output.stdout).map_err(|_| "picture: the demo printed no UTF-8".to_owned())?;
    let picture = anstyle_svg::Term::new().min_width_px(WIDTH).render_svg(&first_story(&text)?);
    let readme = root.join(README);
    let page = fs::read_to_string(&readme).map_err(|error| format!("{README}: {error}"))?;
    let page = with_table(&page, &table(&text)?)?;
    fs::write(root.join(PICTURE), picture).map_err(|error| format!("{PICTURE}: {error}"))?;
    fs::write(readme, page).map_err(|error| format!("{README}: {error}"))?;
    println!("{PICTURE} and the table in {README}: drawn");
    Ok(())
}

/// What was printed up to the second story, under the command that prints it.
fn first_story(text: &str) -> Result<String, String> {
    let lines: Vec<&str> = text.lines().collect();
    let plain = |line: &str| anstream::adapter::strip_str(line).to_string();
    let end = lines.iter().position(|line| plain(line) == NEXT_STORY);
    let end = end.ok_or_else(|| format!("picture: the demo told no story called {NEXT_STORY}"))?;
    Ok(format!("$ oneclock demo\n\n{}\n", lines[..end].join("\n").trim_end()))
}

/// The lines of the table, without colours.
fn table(text: &str) -> Result<String, String> {
    let plain = anstream::adapter::strip_str(text).to_string();
    let (_, table) = plain.split_once(TABLE).ok_or("picture: the demo printed no table of all stories")?;
    let lines: Vec<&str> = table.lines().skip(1).map(str::trim_end).skip_while(|line| line.is_empty()).collect();
    Ok(format!("{}\n", lines.join("\n").trim_end()))
}

fn with_table(page: &str, table: &str) -> Result<String, String> {
    let missing = || format!("picture: {README} has no place for the table: {BEGIN}…{END}");
    let (before, rest) = page.split_once(BEGIN).ok_or_else(missing)?;
    let (_, after) = rest.split_once(END).ok_or_else(missing)?;
    Ok(format!("{before}{BEGIN}{table}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "A shop.\n\n\u{1b}[1mslow-pricing\u{1b}[0m\nstory one\n\n\u{1b}[1mstalled-body\u{1b}[0m\nstory \
                           two\n\n\u{1b}[1mIn short\u{1b}[0m, both\n\n  name  figures\n  slow  1 → 0\n\n  * faster\n";

    #[test]
    fn the_picture_ends_before_the_second_story_and_keeps_its_colours() {
        let story = first_story(PRINTED).expect("a story");
        assert_eq!(story, "$ oneclock demo\n\nA shop.\n\n\u{1b}[1mslow-pricing\u{1b}[0m\nstory one\n");
    }

    #[test]
    fn the_table_replaces_what_stood_there() {
        let table = table(PRINTED).expect("a table");
        assert_eq!(table, "  name  figures\n  slow  1 → 0\n\n  * faster\n");
        let page = with_table(&format!("before\n{BEGIN}old\n{END}\nafter\n"), &table).expect("a place");
        assert_eq!(page, format!("before\n{BEGIN}{table}{END}\nafter\n"));
        assert!(with_table("no place", &table).is_err());
    }
}
