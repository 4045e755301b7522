--- data: datasets, subsets, splits, loaders, and sets in IDX files.
local ag = require "argand"
local cases = require "support.cases"
local data = ag.data

local function raised(fn, ...)
  local ok, err = pcall(fn, ...)
  assert.is_false(ok, "no error was raised")
  assert.is_truthy(type(err) == "table" and err.where and err.where:find("data_spec.lua:", 1, true), tostring(err))
  return err
end

-- n samples: x[i] = {i, 10 i}, y[i] = i
local function numbered(n)
  local y = ag.arange(1, n + 1, { dtype = "i64" })
  local x = ag.stack({ y, y * 10 }, 2)
  return data.TensorDataset { x, y }
end

-- The ids of all batches: one list a batch.
local function ids_of(loader)
  local batches = {}
  for x, y in loader:batches() do
    assert.is_true(x:select(2, 2):equal(y * 10))
    batches[#batches + 1] = y:tolist()
  end
  return batches
end

local function flat_sorted(batches)
  local list = {}
  for _, batch in ipairs(batches) do
    for _, id in ipairs(batch) do list[#list + 1] = id end
  end
  table.sort(list)
  return list
end

local function counted(n)
  local list = {}
  for i = 1, n do list[i] = i end
  return list
end

describe("TensorDataset", function()
  it("has a length, samples, and many samples at once", function()
    local set = numbered(5)
    assert.equal(5, #set)
    local x, y = set:get(3)
    assert.same({ 3, 30 }, x:tolist())
    assert.equal(3, y:item())
    x, y = set:select(ag.tensor({ 5, 1 }, { dtype = "i64" }))
    assert.same({ { 5, 50 }, { 1, 10 } }, x:tolist())
    assert.same({ 5, 1 }, y:tolist())
    x = set:range(2, 2)
    assert.same({ { 2, 20 }, { 3, 30 } }, x:tolist())
    assert.equal("TensorDataset(5: i64[5, 2], i64[5])", tostring(set))
  end)

  it("refuses what are no samples", function()
    local refused = {
      { "TensorDataset: tensors: expected a list of tensors, got nil; e.g. data.TensorDataset{x, y}",
        function() data.TensorDataset() end },
      { "TensorDataset: tensors: expected a list of tensors, got a tensor; e.g. data.TensorDataset{x, y}",
        function() data.TensorDataset(ag.zeros(3)) end },
      { "TensorDataset: tensors: expected tensors with samples along dim 1, got a 0-d tensor at position 2",
        function() data.TensorDataset { ag.zeros(1), ag.tensor(3) } end },
      { "TensorDataset: tensors: 3 samples at position 2, 2 at position 1",
        function() data.TensorDataset { ag.zeros(2), ag.zeros(3) } end },
      { "TensorDataset: index: expected 1 to 3, got 4", function() numbered(3):get(4) end },
      { "TensorDataset: index: expected 1 to 3, got 0", function() numbered(3):get(0) end },
      { "TensorDataset: index: expected 1 to 3, got nil", function() numbered(3):get() end },
      { "Loader: dataset: expected an object with get(i) and a length, got a tensor; wrap tensors: "
        .. "data.TensorDataset{x, y}", function() data.Loader(ag.zeros(3)) end },
      { "Loader: batch_size: expected a whole number >= 1, got 0",
        function() data.Loader(numbered(3), { batch_size = 0 }) end },
      { "Loader: batch_size: expected a whole number >= 1, got inf",
        function() data.Loader(numbered(3), { batch_size = math.huge }) end },
      { "Loader: unknown option 'batchsize'; did you mean 'batch_size'?",
        function() data.Loader(numbered(3), { batchsize = 2 }) end },
      { "Loader: shard: expected {rank, size} with a rank of 0 to size - 1, got {2, 2}; "
        .. "shard = {dist.rank(), dist.size()}", function() data.Loader(numbered(3), { shard = { 2, 2 } }) end },
      { "Loader: shard: expected {rank, size} with a rank of 0 to size - 1, got {0, nil}; "
        .. "shard = {dist.rank(), dist.size()}", function() data.Loader(numbered(3), { shard = { 0 } }) end },
      { "Loader: shard: expected table, got number", function() data.Loader(numbered(3), { shard = 1 }) end },
      { "Loader: shard: ranks that shuffle need the same seed; add seed = a number",
        function() data.Loader(numbered(3), { shard = { 0, 2 }, shuffle = true }) end },
      { "Loader: collate: the dataset makes its own batches; use transform",
        function() data.Loader(numbered(3), { collate = function() end }) end },
      { "Subset: index: expected 1 to 3, got 4", function() data.Subset(numbered(3), { 1, 4 }) end },
      { "Subset: index: expected 1 to 3, got 0", function() data.Subset(numbered(3), { 0 }) end },
      { "Subset: indices: expected a list of positions or a 1-d tensor", function() data.Subset(numbered(3), 2) end },
      { "split: fractions: they add up to 1.1, more than 1", function() data.split(numbered(3), { 0.6, 0.5 }) end },
      { "split: fractions: expected numbers in (0, 1], got 0", function() data.split(numbered(3), { 0, 1 }) end },
      { "split: fractions: expected a list of numbers, e.g. {0.8, 0.2}", function() data.split(numbered(3), 0.5) end },
    }
    local check = cases.begin()
    for _, case in ipairs(refused) do
      check(case[1], function() assert.equal(case[1], raised(case[2]).message) end)
    end
    check.done()
  end)
end)

describe("Subset and split", function()
  it("hand out the samples at their positions", function()
    local set = numbered(6)
    set.classes = { "a", "b" }
    local part = data.Subset(set, { 6, 2, 2 })
    assert.equal(3, #part)
    assert.equal(6, select(2, part:get(1)):item())
    assert.same({ { 6, 2 }, { 2 } }, ids_of(data.Loader(part, { batch_size = 2 })))
    assert.equal(set.classes, part.classes)
    local inner = data.Subset(part, ag.tensor({ 3, 1 }, { dtype = "i64" }))
    assert.same({ { 2, 6 } }, ids_of(data.Loader(inner, { batch_size = 2 })))
    assert.equal(0, #data.Subset(set, {}))
    assert.same({}, ids_of(data.Loader(data.Subset(set, {}), { batch_size = 2 })))
  end)

  it("divide at random into disjoint parts, the same ones for the same seed", function()
    local function parts_of(seed, fractions)
      local lists = {}
      for i, part in ipairs { data.split(numbered(101), fractions, { seed = seed }) } do
        lists[i] = #part > 0 and ids_of(data.Loader(part, { batch_size = 200 }))[1] or {}
      end
      return lists
    end
    local parts = parts_of(1, { 0.7, 0.2, 0.1 })
    assert.same(counted(101), flat_sorted(parts))
    assert.same({ 71, 20, 10 }, { #parts[1], #parts[2], #parts[3] })
    assert.same(parts, parts_of(1, { 0.7, 0.2, 0.1 }))
    assert.not_same(parts, parts_of(2, { 0.7, 0.2, 0.1 }))
    assert.not_same(counted(71), parts[1])
    assert.equal(51, #parts_of(1, { 0.5 })[1])
    assert.equal(101, #flat_sorted(parts_of(1, { 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1 })))
    assert.same({ 0, 0 }, { #data.split(numbered(0), { 0.5, 0.5 }), #select(2, data.split(numbered(0), { 0.5, 0.5 })) })
  end)
end)

describe("Loader", function()
  it("makes batches in order; the last may be short or left out", function()
    local set = numbered(7)
    local loader = data.Loader(set, { batch_size = 3 })
    assert.equal(3, #loader)
    assert.same({ { 1, 2, 3 }, { 4, 5, 6 }, { 7 } }, ids_of(loader))
    assert.same({ { 1, 2, 3 }, { 4, 5, 6 }, { 7 } }, ids_of(loader))
    loader = data.Loader(set, { batch_size = 3, drop_last = true })
    assert.equal(2, #loader)
    assert.same({ { 1, 2, 3 }, { 4, 5, 6 } }, ids_of(loader))
    assert.equal(7, #data.Loader(set))
  end)

  it("copes with empty sets and batches larger than the set", function()
    for _, shuffle in ipairs { false, true } do
      local function loader(n, drop_last)
        return data.Loader(numbered(n), { batch_size = 4, drop_last = drop_last, shuffle = shuffle, seed = 1 })
      end
      assert.equal(0, #loader(0))
      assert.same({}, ids_of(loader(0)))
      assert.same(counted(3), flat_sorted(ids_of(loader(3))))
      assert.equal(1, #loader(3))
      assert.equal(0, #loader(3, true))
      assert.same({}, ids_of(loader(3, true)))
      assert.equal(1, #ids_of(loader(4, true)))
    end
  end)

  it("shuffles anew every epoch, the same way for the same seed", function()
    local function epochs(seed)
      local loader = data.Loader(numbered(50), { batch_size = 8, shuffle = true, seed = seed })
      return { ids_of(loader), ids_of(loader) }
    end
    local first = epochs(3)
    assert.same(counted(50), flat_sorted(first[1]))
    assert.same(counted(50), flat_sorted(first[2]))
    assert.not_same(first[1], first[2])
    assert.same(first, epochs(3))
    assert.not_same(first, epochs(4))
    ag.manual_seed(8)
    local default = epochs()
    ag.manual_seed(8)
    assert.same(default, epochs())
  end)

  it("reads any object with get and a length, stacking what it returns", function()
    local set = { len = function() return 5 end }
    function set:get(i) return ag.full({ 2 }, i), i, i > 3 end
    local seen = {}
    for x, number, flag in data.Loader(set, { batch_size = 2 }):batches() do
      seen[#seen + 1] = { x:tolist(), number:tolist(), flag:tolist() }
      assert.equal("f32", number.dtype)
      assert.equal("bool", flag.dtype)
    end
    assert.same({
      { { { 1, 1 }, { 2, 2 } }, { 1, 2 }, { false, false } },
      { { { 3, 3 }, { 4, 4 } }, { 3, 4 }, { false, true } },
      { { { 5, 5 } }, { 5 }, { true } } }, seen)
    local shuffled = {}
    for _, number in data.Loader(set, { batch_size = 2, shuffle = true, seed = 1 }):batches() do
      shuffled[#shuffled + 1] = number:tolist()
    end
    assert.same(counted(5), flat_sorted(shuffled))
    local texts = { len = function() return 2 end, get = function(_, i) return "text " .. i end }
    assert.equal("Loader: samples: expected tensors, numbers or booleans, got a string; "
      .. "give the loader collate = function(samples)",
      raised(function() data.Loader(texts):batches()() end).message)
    local collate = function(samples) return #samples .. samples[1][1] end
    assert.equal("2text 1", data.Loader(texts, { batch_size = 2, collate = collate }):batches()())
  end)

  it("divides every epoch among the ranks of a job", function()
    local sources = {
      { "tensors", numbered },
      { "get only", function(n)
        local set = numbered(n)
        return { len = function() return n end, get = function(_, i) return set:get(i) end }
      end },
    }
    local check = cases.begin()
    local function holds(source, n, size, shuffle)
      local whole = data.Loader(source(n), { batch_size = 3 * size, shuffle = shuffle, seed = 5 })
      local shards = {}
      for rank = 0, size - 1 do
        shards[rank + 1] = data.Loader(source(n), { batch_size = 3, shuffle = shuffle, seed = 5, shard = { rank, size } })
      end
      for _ = 1, 2 do -- epochs
        local expected, batches = ids_of(whole), {}
        for rank, shard in ipairs(shards) do
          batches[rank] = ids_of(shard)
          assert.equal(#shard, #batches[rank])
        end
        for k, ids in ipairs(expected) do
          for i, id in ipairs(ids) do -- the ranks take turns
            local batch = batches[(i - 1) % size + 1][k] or {}
            assert.equal(id, batch[math.floor((i - 1) / size) + 1])
          end
        end
        local all = {}
        for _, of_rank in ipairs(batches) do
          for _, batch in ipairs(of_rank) do all[#all + 1] = batch end
        end
        assert.same(counted(n), flat_sorted(all))
      end
    end
    for _, source in ipairs(sources) do
      for _, n in ipairs { 0, 1, 3, 12, 13, 23 } do
        for _, size in ipairs { 1, 2, 4 } do
          for _, shuffle in ipairs { false, true } do
            check(("%s, %d samples, %d ranks, shuffle %s"):format(source[1], n, size, tostring(shuffle)), holds, source[2], n,
              size, shuffle)
          end
        end
      end
    end
    check("drop_last", function()
      local counts = {}
      for rank = 0, 1 do counts[rank + 1] = #data.Loader(numbered(7), { batch_size = 4, drop_last = true, shard = { rank, 2 } }) end
      assert.same({ 1, 0 }, counts)
    end)
    check.done()
  end)

  it("transforms every batch, of datasets without range too", function()
    local set = numbered(3)
    local plain = { len = function() return 3 end, get = function(_, i) return set:get(i) end,
      select = function(_, indices) return set:select(indices) end }
    for _, source in ipairs { set, plain } do
      local loader = data.Loader(source, { batch_size = 2, transform = function(x, y) return y, x:to "f32" end })
      local y, x = loader:batches()()
      assert.same({ 1, 2 }, y:tolist())
      assert.equal("f32", x.dtype)
    end
  end)
end)

describe("idx", function()
  -- Writes u8 values in IDX layout and returns the path.
  local paths = {}
  local function write(dims, values, contents)
    local path = os.tmpname()
    paths[#paths + 1] = path
    local parts = { string.char(0, 0, 8, #dims) }
    for _, size in ipairs(dims) do parts[#parts + 1] = string.char(0, 0, 0, size) end
    for _, value in ipairs(values) do parts[#parts + 1] = string.char(value) end
    local file = assert(io.open(path, "wb"))
    file:write(contents or table.concat(parts))
    file:close()
    return path
  end

  teardown(function()
    for _, path in ipairs(paths) do os.remove(path) end
  end)

  it("gives images as they are, labels from 1 on and their classes", function()
    local set = assert(data.idx(write({ 2, 1, 3 }, { 1, 2, 3, 250, 5, 6 }), write({ 2 }, { 0, 2 })))
    assert.equal(2, #set)
    local images, labels = unpack(set.tensors)
    assert.same({ "u8", "i64" }, { images.dtype, labels.dtype })
    assert.same({ { { 1, 2, 3 } }, { { 250, 5, 6 } } }, images:tolist())
    assert.same({ 1, 3 }, labels:tolist())
    assert.same({ 0, 1, 2 }, set.classes)
    local empty = assert(data.idx(write({ 0, 2 }, {}), write({ 0 }, {})))
    assert.equal(0, #empty)
    assert.same({}, empty.classes)
  end)

  it("returns nil and an error for what it cannot read", function()
    local images, labels = write({ 2, 2 }, { 1, 2, 3, 4 }), write({ 2 }, { 0, 1 })
    local check = cases.begin()
    local failures = {
      { "file", "/nonexistent/x", "/nonexistent/x", labels },
      { "file", "/nonexistent/y", images, "/nonexistent/y" },
      { "format", "expected labels in 1 dim, got 2 dims", images, images },
      { "format", "3 labels for 2 images", images, write({ 3 }, { 0, 1, 2 }) },
      { "format", "", write({}, {}, "no IDX file at all"), labels },
      { "format", "", write({}, {}, ""), labels },
      { "format", "", write({ 2, 2 }, { 1, 2, 3 }), labels },
    }
    for _, case in ipairs(failures) do
      local code, text, images_path, labels_path = unpack(case)
      check(code .. " " .. text, function()
        local set, err = data.idx(images_path, labels_path)
        assert.is_nil(set)
        assert.equal(code, err.code)
        assert.is_truthy(err.message:find(text, 1, true), err.message)
      end)
    end
    check.done()
  end)
end)
