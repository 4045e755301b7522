--- files: every cut of a file, every flipped byte of its header, and every allocation that fails while it is read.
local ag = require "argand"
local core = require "argand.core"
local cases = require "support.cases"
local live_memory = require "support.live_memory"

local path = os.tmpname()

local function write(content)
  local file = assert(io.open(path, "wb"))
  file:write(content)
  file:close()
end

local function read()
  local file = assert(io.open(path, "rb"))
  local content = file:read "*a"
  file:close()
  return content
end

local function gzip(content)
  write(content)
  local pipe = io.popen("gzip -nc < " .. path)
  local packed = pipe:read "*a"
  pipe:close()
  return packed
end

local idx = "\0\0\8\2\0\0\0\3\0\0\0\4" .. "abcdefghijkl"
local contents
local loaders = {npy = ag.load_npy, idx = ag.load_idx, ["npy.gz"] = ag.load_npy, ["idx.gz"] = ag.load_idx}

describe("a damaged file", function()
  setup(function()
    ag.save_npy(path, ag.arange(1, 13):reshape(3, 4))
    local npy = read()
    contents = {npy = npy, idx = idx, ["npy.gz"] = gzip(npy), ["idx.gz"] = gzip(idx)}
  end)

  teardown(function() os.remove(path) end)

  it("is whole to begin with", function()
    for kind, content in pairs(contents) do
      write(content)
      assert.same({3, 4}, assert(loaders[kind](path)):shape())
    end
  end)

  it("is refused wherever it is cut", function()
    local check = cases.begin()
    local before = live_memory.now()
    for kind, content in pairs(contents) do
      for length = 0, #content - 1 do
        check(("%s, %d bytes"):format(kind, length), function()
          write(content:sub(1, length))
          local t, err = loaders[kind](path)
          assert.is_nil(t)
          assert(err.code == "format", tostring(err))
        end)
      end
    end
    assert.same(before, live_memory.now())
    check.done()
  end)

  it("never harms the process, whatever byte is wrong", function()
    local check = cases.begin()
    local before = live_memory.now()
    for kind, content in pairs(contents) do
      for at = 1, math.min(#content, 140) do
        for _, change in ipairs {1, 128, 255} do
          check(("%s, byte %d by %d"):format(kind, at, change), function()
            local byte = (content:byte(at) + change) % 256
            write(content:sub(1, at - 1) .. string.char(byte) .. content:sub(at + 1))
            local t, err = loaders[kind](path)
            assert(t and t:numel() >= 0 or err.code == "format" or err.code == "memory", tostring(err))
          end)
        end
      end
    end
    assert.same(before, live_memory.now())
    check.done()
  end)

  it("is no harm either when memory is out", function()
    local check = cases.begin()
    for kind, content in pairs(contents) do
      write(content)
      local before = live_memory.now()
      for n = 1, 100 do
        core.memory_fail_after(n)
        local t, err = loaders[kind](path)
        core.memory_fail_after(0)
        if t then
          assert(n > 1, "no allocation at all")
          break
        end
        check(("%s, allocation %d"):format(kind, n), function()
          assert.equal("memory", err.code)
          assert.same(before, live_memory.now())
        end)
      end
    end
    local t = ag.ones(30, 4):t()
    for n = 1, 100 do
      write "old"
      core.memory_fail_after(n)
      local ok, err = ag.save_npy(path, t)
      core.memory_fail_after(0)
      if ok then break end
      check("saving, allocation " .. n, function()
        assert.equal("memory", err.code)
        assert.equal("old", read())
      end)
    end
    check.done()
  end)
end)
