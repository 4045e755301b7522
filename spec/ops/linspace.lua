--- linspace: sample data.
return {
  calls = {
    {start = 0, stop = 1, count = 5}, {start = 2, stop = -3, count = 8}, {start = 2, stop = 7, count = 1},
  },
  empty = {{start = 0, stop = 1, count = 0}}, special = false, large = {start = 0, stop = 10, count = 100003},
  expect = {{{start = 0, stop = 1, count = 3}, {0, 0.5, 1}}},
}
