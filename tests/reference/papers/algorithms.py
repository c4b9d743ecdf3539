"""The five papers' algorithms in a few lines of numpy each, written from their pseudo-code.

They share no code with the package. Every client takes part with all of its records.
"""

import numpy as np


def softmax_gradient(theta, inputs, labels, classes):
    """Return the mean gradient of the cross-entropy of a linear model, weights before biases."""
    size = inputs.shape[1]
    weights, biases = theta[: classes * size].reshape(classes, size), theta[classes * size :]
    scores = inputs @ weights.T + biases
    chances = np.exp(scores - scores.max(1, keepdims=True))
    chances /= chances.sum(1, keepdims=True)
    chances[np.arange(len(labels)), labels] -= 1.0
    slopes = chances.T @ inputs / len(labels)
    return np.concatenate([slopes.ravel(), chances.mean(0)])


def local_update(theta, client, classes, steps, rate):
    """Return a client's change after some steps of gradient descent."""
    found = theta.copy()
    for _ in range(steps):
        found -= rate * softmax_gradient(found, *client, classes)
    return found - theta


def two_sided_fedavg(theta, clients, classes, *, rounds, steps, rate, server_rate):
    """Yang, Fang and Liu, Algorithm 1."""
    for _ in range(rounds):
        updates = [local_update(theta, each, classes, steps, rate) for each in clients]
        theta = theta + server_rate * np.mean(updates, axis=0)
    return theta


def scaffold(theta, clients, classes, *, rounds, steps, rate):
    """Karimireddy et al., Algorithm 1 with its second choice."""
    server, own = np.zeros_like(theta), np.zeros((len(clients), len(theta)))
    for _ in range(rounds):
        updates = []
        for index, client in enumerate(clients):
            found = theta.copy()
            for _ in range(steps):
                slope = softmax_gradient(found, *client, classes)
                found -= rate * (slope - own[index] + server)
            updates.append(found - theta)
        changes = np.array(updates)
        own_now = own - server - changes / (steps * rate)
        theta = theta + changes.mean(0)
        server, own = server + (own_now - own).mean(0), own_now
    return theta


def fed_smp_sum(theta, clients, classes, mask, *, steps, rate, clip_norm):
    """Hu, Guo and Gong, Algorithm 2 with rand_k: the sum of the clipped updates, without noise."""
    total = np.zeros(len(mask))
    for client in clients:
        sent = local_update(theta, client, classes, steps, rate)[mask] * len(theta) / len(mask)
        total += sent * min(1.0, clip_norm / np.linalg.norm(sent))
    return total


def fa_ld(start, target, generator, *, rounds, steps, step_size, temperature, correlation):
    """Deng et al., Algorithm 1, on f^c(x) = (x - b_c)' H_c (x - b_c) / 2; one row is one chain."""
    server = start.copy()
    for _ in range(rounds):
        local = np.repeat(server[None], len(target.shares), axis=0)
        for _ in range(steps):
            common = generator.standard_normal(server.shape)
            for client, share in enumerate(target.shares):
                slope = (local[client] - target.centres[client]) @ target.hessians[client]
                own = generator.standard_normal(server.shape)
                noise = correlation * common + np.sqrt((1 - correlation**2) / share) * own
                local[client] += np.sqrt(2 * step_size * temperature) * noise - step_size * slope
        server = np.tensordot(target.shares, local, 1)
    return server


def fa_hmc(start, target, generator, *, rounds, iterations, steps, step_size, correlation):
    """Algorithms 1 to 3 of the FA-HMC paper without Metropolis steps; one row is one chain."""
    server = start.copy()
    for _ in range(rounds):
        local = np.repeat(server[None], len(target.shares), axis=0)
        for _ in range(iterations):
            common = generator.standard_normal(server.shape)
            for client, share in enumerate(target.shares):
                own = generator.standard_normal(server.shape)
                speed = np.sqrt(correlation) * common + np.sqrt((1 - correlation) / share) * own
                hessian, centre, place = (
                    target.hessians[client],
                    target.centres[client],
                    local[client],
                )
                for _ in range(steps):
                    before = (place - centre) @ hessian
                    place = place + step_size * speed - step_size**2 / 2 * before
                    speed = speed - step_size / 2 * (before + (place - centre) @ hessian)
                local[client] = place
        server = np.tensordot(target.shares, local, 1)
    return server


def fed_plt(agents, prox, generator, *, rounds, steps, step_size, penalty, noise_std, runs):
    """Fed-PLT, Algorithm 1, for least squares with |x|^2 / 4; returns z, (runs, agents, d)."""
    size = agents[0][0].shape[1]
    models, duals = np.zeros((2, runs, len(agents), size))
    for _ in range(rounds):
        centre = prox(duals.mean(1), penalty / len(agents))
        for index, (inputs, outputs) in enumerate(agents):
            anchor, found = 2 * centre - duals[:, index], models[:, index]
            for _ in range(steps):
                slope = (found @ inputs.T - outputs) @ inputs / len(outputs) + 0.5 * found
                noise = noise_std * generator.standard_normal(found.shape)
                found = found - step_size * (slope + (found - anchor) / penalty) + noise
            models[:, index] = found
            duals[:, index] += 2 * (found - centre)
    return duals
