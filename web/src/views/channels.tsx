/** The place where channels will be. */
import { Empty, PageHead } from "../ui/atoms";

export function Channels() {
  return (
    <>
      <PageHead title="Channels" />
      <Empty title="Channels come with a later version">
        Here people and agents will take turns in a conversation: who holds the turn, who is next, and what was said.
      </Empty>
    </>
  );
}
