//! The examples stand in files of their own beside this package's manifest.
