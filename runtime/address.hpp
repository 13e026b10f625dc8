// Where to send: a copyable handle, one pointer wide, that can only send. A mailbox outlives every
// address of it: mailboxes are destroyed after all lanes have been joined, and an actor that is
// rebuilt goes on with the mailbox of the one before it.
#pragma once

#include <utility>

#include "runtime/mailbox.hpp"

namespace troupe::runtime {

template <class Message>
class Address {
 public:
    explicit Address(Mailbox<Message>& mailbox) noexcept : mailbox_(&mailbox) {}

    // From any thread; as Mailbox::send() and Mailbox::send_control().
    bool send(Message message) const { return mailbox_->send(std::move(message)); }
    bool send_control(Message message) const { return mailbox_->send_control(std::move(message)); }

    friend bool operator==(const Address&, const Address&) = default;

 private:
    Mailbox<Message>* mailbox_;
};

}  // namespace troupe::runtime
