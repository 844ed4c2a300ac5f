//! `--scenario stale-queue`: what is done behind the counter when a queue's consumer was down, in words and figures.

use std::io::{self, Write};

use oneclock_checkout::stale_queue::{Behind, Outage, StaleQueue};

use super::print::{Better, Figure, HEADING, columns, compared, in_words, paragraph};

pub(super) fn told(out: &mut impl Write, outage: &Outage, seen: &StaleQueue) -> io::Result<()> {
    writeln!(out, "{HEADING}{}{HEADING:#}", Outage::NAME)?;
    let [first, last] = outage.deaths;
    paragraph(
        out,
        &format!(
            "The order service answers within {}. What a purchase leaves to be done goes through a queue: the confirmation, whose price \
             holds for {} h, and of one card in {}, whose provider has not answered in {}, what became of it. The consumer dies with \
             mail {first} just sent, is started again, and dies with mail {last}; somebody notices at hour {}. At hour {} somebody puts \
             the dead letters back.",
            in_words(outage.patience),
            outage.useful,
            outage.unknown_one_in,
            in_words(outage.payment),
            outage.back_at,
            outage.redrive_at,
        ),
    )?;
    paragraph(
        out,
        &format!(
            "Independent: each message has a time to live of {} h, which counts from when it was published; confirmations that are dead \
             go into a queue of their own, where that time is not kept, and of the cards nobody thought. One budget for the tap, and for \
             each piece of work its own expiry: a confirmation is discarded after it, and counted; a card is settled late, and has an \
             owner.",
            outage.useful,
        ),
    )?;
    let place = match seen.queues {
        "memory" => {
            "The queues are in this process's memory, and behave as those of a broker; `--rabbitmq URL` takes a real one."
        }
        _ => "The queues are on that RabbitMQ, both ways.",
    };
    paragraph(out, &format!("{place} Behind the counter an hour takes {}.", in_words(outage.hour)))?;
    writeln!(out)?;
    figures(out, outage, seen)?;
    writeln!(out)?;
    paragraph(out, &conclusion(seen))?;
    writeln!(out)
}

fn figures(out: &mut impl Write, outage: &Outage, seen: &StaleQueue) -> io::Result<()> {
    let StaleQueue { independent, propagated, .. } = seen;
    columns(out)?;
    let mut row = |better, label: &str, value: &dyn Fn(&Behind) -> Figure| {
        compared(out, better, label, &value(independent), &value(propagated))
    };
    let patience = outage.patience.as_millis();
    row(Better::More, &format!("answered within {patience} ms"), &|way| Figure::count(way.answers_in_time))?;
    row(Better::Neither, "confirmations accepted", &|way| Figure::count(way.confirmations.accepted))?;
    row(Better::Neither, "  sent while their price held", &|way| Figure::count(way.confirmations.in_time))?;
    row(Better::Less, "  sent with a price that did not hold any more", &|way| Figure::count(way.confirmations.late))?;
    row(Better::Less, "  the last of those, after", &|way| match way.confirmations.late {
        0 => Figure::said("·", 0.0),
        _ => Figure::decimal(way.confirmations.latest_hours, " h"),
    })?;
    row(Better::Less, "  sent once more", &|way| Figure::count(way.confirmations.again))?;
    row(Better::Neither, "  not sent, for a reason that was counted", &|way| {
        Figure::count(way.confirmations.ended.values().sum())
    })?;
    row(Better::Less, "  nobody knows", &|way| Figure::count(way.confirmations.lost))?;
    row(Better::Neither, "cards that were charged, or not: nobody knew", &|way| Figure::count(way.cards.unknown))?;
    row(Better::Neither, &format!("  found out within {} h", seen.useful_hours), &|way| {
        Figure::count(way.cards.in_time)
    })?;
    row(Better::Neither, "  found out later, and told that it is late", &|way| Figure::count(way.cards.flagged))?;
    row(Better::Less, "  never found out", &|way| Figure::count(way.cards.lost))?;
    row(Better::Less, "    of those, charged", &|way| Figure::count(way.cards.lost_and_charged))?;
    row(Better::Neither, "dead letters put back", &|way| Figure::count(way.redriven))
}

/// The figures in words.
fn conclusion(seen: &StaleQueue) -> String {
    format!(
        "With a time to live, {} With an expiry of their own, {}",
        in_short(&seen.independent),
        in_short(&seen.propagated)
    )
}

fn in_short(way: &Behind) -> String {
    let (mails, cards) = (&way.confirmations, &way.cards);
    let mut said = format!("{} of {} confirmations had a price that did not hold any more", mails.late, mails.accepted);
    if mails.late > 0 {
        said += &format!(" (the last went out after {} h)", mails.latest_hours);
    }
    said += &format!(", {} were sent once more", mails.again);
    let reasons: Vec<String> = mails.ended.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    if !reasons.is_empty() {
        said += &format!(", and what was not sent has a reason: {}", reasons.join(", "));
    }
    said += &format!(
        ". Of {} cards {} were forgotten, {} of them charged",
        cards.unknown, cards.lost, cards.lost_and_charged
    );
    if let Some(owner) = &cards.owner {
        said += &format!("; {} were settled late, and {owner} answers for them", cards.flagged);
    }
    said + "."
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use oneclock_checkout::stale_queue::{Cards, Confirmations};

    use super::*;

    #[test]
    fn the_figures_are_told_in_words() {
        let way = |late, again, ended: &[(&str, usize)], lost, owner: Option<&str>| Behind {
            answers_in_time: 120,
            confirmations: Confirmations {
                accepted: 90,
                in_time: 90 - late,
                late,
                latest_hours: 3.2,
                again,
                ended: ended.iter().map(|(reason, count)| ((*reason).to_owned(), *count)).collect::<BTreeMap<_, _>>(),
                lost: 0,
            },
            cards: Cards {
                unknown: 20,
                in_time: 10,
                late: 10 - lost,
                flagged: 10 - lost,
                owner: owner.map(str::to_owned),
                lost,
                lost_and_charged: lost / 2,
            },
            redriven: 50,
        };
        let seen = StaleQueue {
            name: Outage::NAME,
            queues: "memory",
            hour_ms: 1_000,
            useful_hours: 1.0,
            independent: way(50, 2, &[], 10, None),
            propagated: way(0, 0, &[("dead_lettered rejected", 3), ("discarded expired", 47)], 0, Some("payments")),
        };
        insta::assert_snapshot!(conclusion(&seen), @"With a time to live, 50 of 90 confirmations had a price that did not hold any more (the last went out after 3.2 h), 2 were sent once more. Of 20 cards 10 were forgotten, 5 of them charged. With an expiry of their own, 0 of 90 confirmations had a price that did not hold any more, 0 were sent once more, and what was not sent has a reason: 3 dead_lettered rejected, 47 discarded expired. Of 20 cards 0 were forgotten, 0 of them charged; 10 were settled late, and payments answers for them.");
    }
}
