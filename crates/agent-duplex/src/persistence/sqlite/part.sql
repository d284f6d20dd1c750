-- The parts of an input after its text, in order. Version 2 added this table.
CREATE TABLE part (
    conversation INTEGER NOT NULL REFERENCES conversation,
    receipt BLOB NOT NULL,
    position INTEGER NOT NULL,
    kind TEXT NOT NULL,
    content TEXT NOT NULL,
    PRIMARY KEY (conversation, receipt, position)
) STRICT, WITHOUT ROWID;
