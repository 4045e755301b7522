--- eye: sample data.
return {
  calls = {{rows = 3}, {rows = 3, columns = 5}, {rows = 4, columns = 2}},
  empty = {{rows = 0}, {rows = 0, columns = 3}}, special = false,
  large = {rows = 317}, expect = {{{rows = 2, columns = 3}, {{1, 0, 0}, {0, 1, 0}}}},
}
