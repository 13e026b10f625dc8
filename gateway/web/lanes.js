// Which answer owns which stream_id. Deltas carry no response id, so a lane belongs to one answer
// from its response.create to its terminal event, and only then to the next. Pure bookkeeping.

// The server allows 16 answers in flight on a connection; eight is plenty for one person.
const laneCount = 8;

export class Lanes {
    constructor() {
        this.owners = new Map();  // stream_id -> {conversationId, answerId, created}
    }

    // Returns the stream_id, or null if every lane is taken.
    claim(owner) {
        for (let index = 0; index < laneCount; index += 1) {
            const lane = `chat-${index}`;
            if (!this.owners.has(lane)) {
                this.owners.set(lane, owner);
                return lane;
            }
        }
        return null;
    }

    owner(lane) {
        return this.owners.get(lane);
    }

    laneOf(answerId) {
        for (const [lane, owner] of this.owners) {
            if (owner.answerId === answerId) return lane;
        }
        return null;
    }

    release(lane) {
        this.owners.delete(lane);
    }

    // Empties every lane and returns who held them.
    releaseAll() {
        const owners = [...this.owners.values()];
        this.owners.clear();
        return owners;
    }
}
