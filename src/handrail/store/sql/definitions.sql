-- put_workflow: the newest version is the definition
INSERT INTO workflows (id, name, kind, version, definition, created_at, updated_at)
VALUES (:workflow_id, :name, :kind, :version, :definition, :created_at, :created_at)
ON CONFLICT (id) DO UPDATE SET name = excluded.name, kind = excluded.kind,
  version = excluded.version, definition = excluded.definition, updated_at = excluded.updated_at
WHERE excluded.version > workflows.version;

-- insert_versions: a version is written once
INSERT INTO workflow_versions ({DefinitionRow}) {values DefinitionRow} ON CONFLICT DO NOTHING;

-- foreign_definition: by id or name, with a version by another owner
SELECT w.id FROM workflows w JOIN workflow_versions v ON v.workflow_id = w.id
WHERE (w.id IN (:id, :name) OR w.name IN (:id, :name)) AND v.created_by <> :owner
ORDER BY w.id LIMIT 1;

-- definition: a version, by default the newest; by id, else by the name of the newest version
SELECT {DefinitionRow v} FROM workflows w JOIN workflow_versions v ON v.workflow_id = w.id
WHERE (w.id = :id OR w.name = :id)
  AND v.version = w.version AND :newest::boolean
  AND v.version = :version
ORDER BY w.id = :id DESC, w.updated_at DESC LIMIT 1;

-- definition_record: what is on record of its versions, the newest first
SELECT body FROM journal WHERE stream = :stream AND body IS NOT NULL ORDER BY seq DESC;

-- definitions: the newest version of each, by id
SELECT {DefinitionRow v}
FROM workflows w JOIN workflow_versions v ON v.workflow_id = w.id AND v.version = w.version
WHERE w.id > :after ORDER BY w.id LIMIT :limit;

-- versions: of one definition, the newest first
SELECT {DefinitionRow} FROM workflow_versions WHERE workflow_id = :id ORDER BY version DESC;
