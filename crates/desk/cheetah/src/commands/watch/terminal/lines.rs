//! The parts of the picture as lines of a width.

use cheetah_device::visible::OneLine;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::fold::{folded_in, width};
use super::paint::Paint;
use super::{drive, machines};
use crate::answers::watch::{Health, Job, Link, LogEnd, Picture};
use crate::commands::watch::show::{describe_job, describe_link, describe_record, is_drawn};

/// A part, with a title.
pub struct Part {
    title: &'static str,
    lines: Vec<Line<'static>>,
}

/// The parts that there are, in the order of the page.
pub fn parts(picture: &Picture, columns: usize, paint: Paint) -> Vec<Part> {
    let mut drives: Vec<_> = picture.drives.iter().flat_map(|one| drive::lines(one, columns, paint)).collect();
    drives.extend(drive::legend(&picture.drives, columns, paint));
    let links = picture.links.iter().filter(|link| is_drawn(link)).flat_map(|link| of_link(link, columns, paint));
    let jobs = picture.jobs.iter().flat_map(|job| of_job(job, columns, paint));
    let machines = match picture.machines.is_empty() {
        true => Vec::new(),
        false => machines::lines(&picture.machines, picture.at_ms, (columns, paint)),
    };
    let custody = picture.custody.iter().flat_map(|log| of_log(log, columns, paint));
    let all = [
        Part { title: "Drives", lines: drives },
        Part { title: "Links", lines: links.collect() },
        Part { title: "Jobs", lines: jobs.collect() },
        Part { title: "Machines", lines: machines },
        Part { title: "Custody logs", lines: custody.collect() },
    ];
    all.into_iter().filter(|part| !part.lines.is_empty()).collect()
}

/// All lines, and the numbers of those with which a part begins.
pub fn in_order(parts: Vec<Part>, columns: usize, paint: Paint) -> (Vec<Line<'static>>, Vec<usize>) {
    let (mut lines, mut begins) = (Vec::new(), Vec::new());
    for part in parts {
        if !lines.is_empty() {
            lines.push(Line::default());
        }
        begins.push(lines.len());
        let rule = "─".repeat(columns.saturating_sub(width(part.title) + 1));
        lines.push(Line::from(vec![
            Span::styled(part.title, paint.title()),
            Span::styled(format!(" {rule}"), paint.quiet()),
        ]));
        lines.extend(part.lines);
    }
    (lines, begins)
}

fn of_link(link: &Link, columns: usize, paint: Paint) -> Vec<Line<'static>> {
    let is_over = link.capacity.as_ref().zip(link.read_bytes_per_s).is_some_and(|(it, rate)| rate > it.bytes_per_s);
    let style = if is_over { paint.of(Health::Attention) } else { Style::new() };
    folded_in(&describe_link(link), (0, columns), style)
}

fn of_job(job: &Job, columns: usize, paint: Paint) -> Vec<Line<'static>> {
    let needs_a_look = job.writer.is_none() || job.unreadable_ranges.is_some_and(|ranges| ranges > 0);
    let style = if needs_a_look { paint.of(Health::Attention) } else { Style::new() };
    folded_in(&describe_job(job), (0, columns), style)
}

fn of_log(log: &LogEnd, columns: usize, paint: Paint) -> Vec<Line<'static>> {
    let mut lines = folded_in(&OneLine(&log.log).to_string(), (0, columns), paint.title());
    for problem in &log.problems {
        lines.extend(folded_in(&format!("PROBLEM: {problem}"), (2, columns), paint.of(Health::Bad)));
    }
    for record in &log.records {
        lines.extend(folded_in(&describe_record(record), (2, columns), Style::new()));
    }
    lines
}
