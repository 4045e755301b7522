--- arange: sample data.
return {
  calls = {
    {start = 5}, {start = 2, stop = 9}, {start = 1, stop = 12, step = 3}, {start = 9, stop = 2, step = -2},
  },
  empty = {{start = 0}, {start = 3, stop = 3}}, special = false, large = {start = 100003},
  expect = {
    {{start = 4}, {0, 1, 2, 3}}, {{start = 0, stop = 1, step = 0.25, dtype = "f64"}, {0, 0.25, 0.5, 0.75}},
  },
}
