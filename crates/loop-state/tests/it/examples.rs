//! Runs the examples.

#[path = "../../examples/shell.rs"]
mod shell;
#[path = "../../examples/what_if.rs"]
mod what_if;

#[test]
fn smallest_runner_survives_kills_and_finishes() {
    shell::main().unwrap();
}

#[test]
fn more_budget_finishes_more_simulated_runs() {
    let shares = what_if::BUDGETS.map(|dollars| what_if::finished(dollars).unwrap());
    assert_eq!(
        shares,
        what_if::BUDGETS.map(|dollars| what_if::finished(dollars).unwrap())
    );
    assert!(
        shares.is_sorted() && shares[0] > 0 && shares[2] < what_if::RUNS,
        "{shares:?}"
    );
    what_if::main().unwrap();
}
