/* Sorts numbers that are spread over all processes, in C++: each draws its own, borders are chosen from samples, all numbers travel to the
   process between whose borders they lie, and the order is checked across processes. Compiled by mpicxx and mpicxx_abi, run by
   `cargo xtask test`. */
#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

namespace {

/* What a process has: how many numbers, and their sum, which sorting must not change. */
struct Tally {
    std::int64_t count;
    std::uint64_t sum;
};

Tally tally(const std::vector<std::uint32_t> &numbers) {
    Tally found{static_cast<std::int64_t>(numbers.size()), 0};
    for (auto number : numbers) {
        found.sum += number;
    }
    return found;
}

void add(void *in, void *inout, int *len, MPI_Datatype *) {
    auto from = static_cast<const Tally *>(in);
    auto to = static_cast<Tally *>(inout);
    for (int i = 0; i < *len; i++) {
        to[i].count += from[i].count;
        to[i].sum += from[i].sum;
    }
}

Tally everybodys(Tally mine, MPI_Comm comm) {
    const int lengths[] = {1, 1};
    const MPI_Aint places[] = {offsetof(Tally, count), offsetof(Tally, sum)};
    const MPI_Datatype kinds[] = {MPI_INT64_T, MPI_UINT64_T};
    MPI_Datatype type;
    MPI_Type_create_struct(2, lengths, places, kinds, &type);
    MPI_Type_commit(&type);
    MPI_Op sum;
    MPI_Op_create(add, 1, &sum);
    Tally all{};
    MPI_Allreduce(&mine, &all, 1, type, sum, comm);
    MPI_Op_free(&sum);
    MPI_Type_free(&type);
    return all;
}

std::vector<std::uint32_t> borders(const std::vector<std::uint32_t> &sorted, int ranks, MPI_Comm comm) {
    std::vector<std::uint32_t> samples(ranks), all(static_cast<std::size_t>(ranks) * ranks);
    for (int i = 0; i < ranks; i++) {
        samples[i] = sorted[sorted.size() * i / ranks];
    }
    MPI_Allgather(samples.data(), ranks, MPI_UINT32_T, all.data(), ranks, MPI_UINT32_T, comm);
    std::sort(all.begin(), all.end());
    std::vector<std::uint32_t> chosen;
    for (int i = 1; i < ranks; i++) {
        chosen.push_back(all[static_cast<std::size_t>(i) * ranks + ranks / 2]);
    }
    return chosen;
}

std::vector<std::uint32_t> exchanged(const std::vector<std::uint32_t> &sorted, int ranks, MPI_Comm comm) {
    std::vector<int> out(ranks), out_at(ranks), in(ranks), in_at(ranks);
    auto begin = sorted.begin();
    const auto between = borders(sorted, ranks, comm);
    for (int rank = 0; rank < ranks; rank++) {
        auto end = rank < ranks - 1 ? std::upper_bound(begin, sorted.end(), between[rank]) : sorted.end();
        out_at[rank] = static_cast<int>(begin - sorted.begin());
        out[rank] = static_cast<int>(end - begin);
        begin = end;
    }
    MPI_Alltoall(out.data(), 1, MPI_INT, in.data(), 1, MPI_INT, comm);
    int total = 0;
    for (int rank = 0; rank < ranks; rank++) {
        in_at[rank] = total;
        total += in[rank];
    }
    std::vector<std::uint32_t> mine(total);
    MPI_Alltoallv(sorted.data(), out.data(), out_at.data(), MPI_UINT32_T, mine.data(), in.data(), in_at.data(), MPI_UINT32_T, comm);
    std::sort(mine.begin(), mine.end());
    return mine;
}

/* Whether nothing of mine is below the greatest number of those before me. */
bool in_order(const std::vector<std::uint32_t> &mine, int rank, MPI_Comm comm) {
    std::uint32_t greatest = mine.empty() ? 0 : mine.back(), before = 0;
    MPI_Exscan(&greatest, &before, 1, MPI_UINT32_T, MPI_MAX, comm);
    return rank == 0 || mine.empty() || before <= mine.front();
}

} // namespace

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    std::mt19937 random(1 + rank);
    std::vector<std::uint32_t> mine(20000 + 1000 * rank);
    std::generate(mine.begin(), mine.end(), random);
    const Tally before = everybodys(tally(mine), MPI_COMM_WORLD);
    std::sort(mine.begin(), mine.end());
    mine = exchanged(mine, ranks, MPI_COMM_WORLD);
    const Tally after = everybodys(tally(mine), MPI_COMM_WORLD);
    int good = in_order(mine, rank, MPI_COMM_WORLD) && before.count == after.count && before.sum == after.sum;
    MPI_Allreduce(MPI_IN_PLACE, &good, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
    if (rank == 0) {
        std::printf("%lld numbers sorted by %d processes: %s\n", static_cast<long long>(after.count), ranks, good ? "in order" : "wrong");
    }
    MPI_Finalize();
    return good ? 0 : 1;
}
