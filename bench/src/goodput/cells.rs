//! Which systems are shown in which scenario.

use crate::scenario::Scenario;
use crate::system::System;

/// One system in one scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) scenario: Scenario,
    pub(crate) system: System,
}

/// In every scenario.
const ALWAYS: [System; 3] = [System::Ours, System::Tower, System::EnvoyAdaptive];
/// At 3 times the capacity of a single tier; the three above are there in the steps.
const ALONE: [System; 11] = [
    System::None,
    System::HopsShort,
    System::HopsLong,
    System::Resilience,
    System::Tonic,
    System::Grpcio,
    System::EnvoyPlain,
    System::EnvoyDocs,
    System::EnvoyAdmission,
    System::EnvoyOurs,
    System::OursFinds,
];
/// In a chain. Not grpcio, whose processor time three tiers and their retries would use up, nor the variants of Envoy that
/// the single tier has judged.
const IN_A_CHAIN: [System; 6] =
    [System::None, System::HopsShort, System::HopsLong, System::Resilience, System::Tonic, System::EnvoyPlain];

impl Cell {
    /// As `--cell` names it.
    pub(crate) fn name(self) -> String {
        format!("{}/{}", self.scenario.name(), self.system.name())
    }

    pub(crate) fn all() -> Vec<Self> {
        let mut cells = Vec::new();
        for scenario in Scenario::ALL {
            let (always, others): (&[System], &[System]) = match scenario {
                Scenario::Spike => (&[], &ALONE),
                Scenario::Chain => (&ALWAYS, &IN_A_CHAIN),
                _ => (&ALWAYS, &[]),
            };
            cells.extend(always.iter().chain(others).map(|system| Self { scenario, system: *system }));
        }
        cells
    }

    /// In each scenario ours, tower and one more.
    pub(crate) fn smoke() -> Vec<Self> {
        let shown = |cell: &Self| match (cell.scenario, cell.system) {
            (_, System::Ours | System::Tower) => true,
            (Scenario::Spike, system) => system == System::Grpcio,
            (Scenario::Chain, system) => system == System::Tonic,
            (_, system) => system == System::EnvoyAdaptive,
        };
        Self::all().into_iter().filter(shown).collect()
    }
}
